"""The manifest that ``certify init`` writes: files pinned by hash, every check declared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from certify import manifest
from certify.references.llama_cpp import installed_version, revision_of
from engine.errors import EngineError, UnsupportedError
from engine.model import Header
from engine.text import printable

CONTEXT_TOKENS = 2048
SECOND_REFERENCES = {"gpt2": "tokenizers", "llama": "sentencepiece"}


class InitialError(Exception):
    """A file cannot be put into a manifest."""


def manifest_text(files: Sequence[Path], name: str) -> str:
    """YAML of a manifest for ``files``. InitialError names the file that is no model, and why."""
    models = []
    for path in files:
        try:
            models.append(_model(path))
        except EngineError as error:
            raise InitialError(str(error)) from error
    seen: dict[str, int] = {}
    for model in models:
        seen[model["id"]] = count = seen.get(model["id"], 0) + 1
        if count > 1:
            model["id"] = f"{model['id']}-{count}"
    document: dict[str, Any] = {"schema": "gaugeblock.manifest/1", "name": name}
    version = installed_version()
    if version is not None:
        document["references"] = {"llama.cpp": {"provider": "xllamacpp", "revision": revision_of(version)}}
    document["models"] = models
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    try:
        manifest.parse(text.encode("utf-8", "surrogatepass"), name="the manifest would not be valid")
    except manifest.ManifestError as error:
        raise InitialError(str(error)) from error
    return text


def name_from(text: str) -> str:
    """``text`` as the schema admits it for a name; empty where nothing of it is left."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-._+")[:120]


def _model(path: Path) -> dict[str, Any]:
    with Header.open(path) as header:
        architecture = header.metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise UnsupportedError(f"{printable(path)} names no general.architecture")
        trained = header.metadata.get(f"{architecture}.context_length")
        license_ = header.metadata.get("general.license")
        context = min(trained, CONTEXT_TOKENS) if isinstance(trained, int) and trained > 0 else CONTEXT_TOKENS
        second = SECOND_REFERENCES.get(str(header.metadata.get("tokenizer.ggml.model")))
        entry: dict[str, Any] = {
            "id": name_from(path.name.removesuffix(".gguf")) or "model",
            "architecture": architecture,
            "artifacts": [
                {
                    "name": path.name,
                    "sha256": header.sha256(),
                    "bytes": header.size_bytes,
                    "sources": [{"path": path.name}],
                }
            ],
            "config": {"activations": "wide", "kv": "f16", "context_tokens": context},
            "checks": _checks(second, context),
        }
        if isinstance(license_, str) and license_:
            entry["license"] = license_[:200]
        return entry


def _checks(second: str | None, context: int) -> dict[str, Any]:
    """Every check, cut to what the context admits."""
    return {
        "load": {},
        "tokenizer": {"corpus": "core-1", "references": ["llama.cpp", *([second] if second else [])]},
        "greedy_reference": {"prompts": "default-16", "tokens": min(64, max(1, context // 4))},
        "identity": {"tokens": min(160, context)},
        "fidelity": {"against": "llama.cpp", "corpus": "prose", "positions": min(400, context)},
    }
