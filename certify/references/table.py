"""The one table of references: provider to the class that opens it on a model file.

A class takes the path of the model; the pin, if the manifest has one, names the provider.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

from certify.references import ReferenceUnavailable
from certify.references.llama_cpp import LlamaCpp
from certify.references.llama_peer import open_peer
from certify.references.llama_server import LlamaServer
from certify.targets import Job

DEFAULT_PROVIDERS = {"llama.cpp": "xllamacpp", "tokenizers": "tokenizers", "sentencepiece": "sentencepiece"}
CLASSES = {
    "xllamacpp": "certify.references.llama_cpp:LlamaCpp",
    "tokenizers": "certify.references.hf_tokenizers:HfTokenizer",
    "sentencepiece": "certify.references.sentencepiece_ref:SentencePieceTokenizer",
}


def open_reference(name: str, job: Job) -> Any:
    """Open the reference called ``name`` on the job's file. ReferenceUnavailable names what lacks.

    ``NAME/speed`` opens it to be timed; ``peer/speed`` is the program that ``--peer`` named;
    ``NAME/server`` is its HTTP server.
    """
    if name.endswith("/server"):
        return open_server(name.removesuffix("/server"), job)
    plain = name.removesuffix("/speed")
    model = job.artifacts[0].path
    if plain != name:
        return open_speed(plain, model, job.peer)
    pin = job.references.get(name)
    return open_path(name, model, pin.provider if pin else None)


def open_speed(name: str, model: str, peer: str | None) -> Any:
    """An opponent in speed: the user's program, or the llama.cpp of the wheel."""
    if name == "peer" and peer is not None:
        return open_peer(peer, model)
    if name != "llama.cpp":
        raise ReferenceUnavailable(f"{name!r} cannot be timed; llama.cpp and the program of --peer can")
    return LlamaCpp(model, hurried=True)


def open_server(name: str, job: Job) -> LlamaServer:
    """The reference's own server on the job's file."""
    if name != "llama.cpp":
        raise ReferenceUnavailable(f"{name!r} has no server; llama.cpp has one")
    return LlamaServer(job.artifacts[0].path, cast("int", job.config["context_tokens"]))


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
