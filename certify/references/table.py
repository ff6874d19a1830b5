"""The one table of references: provider to the class that opens it on a model file.

A class takes the path of the model; the pin, if the manifest has one, names the provider.
"""

from __future__ import annotations

import importlib
from typing import Any

from certify.references import ReferenceUnavailable
from certify.targets import Job

DEFAULT_PROVIDERS = {"llama.cpp": "xllamacpp", "tokenizers": "tokenizers", "sentencepiece": "sentencepiece"}
CLASSES = {
    "xllamacpp": "certify.references.llama_cpp:LlamaCpp",
    "tokenizers": "certify.references.hf_tokenizers:HfTokenizer",
    "sentencepiece": "certify.references.sentencepiece_ref:SentencePieceTokenizer",
}


def open_reference(name: str, job: Job) -> Any:
    """Open the reference called ``name`` on the job's file. ReferenceUnavailable names what lacks."""
    pin = job.references.get(name)
    return open_path(name, job.artifacts[0].path, pin.provider if pin else None)


def open_path(name: str, model: str, provider: str | None = None) -> Any:
    """Open a reference on any model file."""
    provider = provider or DEFAULT_PROVIDERS.get(name)
    if provider not in CLASSES:
        known = ", ".join(DEFAULT_PROVIDERS)
        raise ReferenceUnavailable(f"no reference is called {name!r}; known without a pin are {known}")
    module, _, attribute = CLASSES[provider].partition(":")
    try:
        opener = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ReferenceUnavailable(f"{error}: pip install 'gaugeblock[reference]'") from None
    return opener(model)
