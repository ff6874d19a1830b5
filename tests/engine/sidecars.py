"""Sidecars for tests: a valid one for any file, to be changed in one place each."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import canonical

CONTRACTS = {"numerics": "gb1", "tokenizer": "t1", "template": "j1"}
REQUIRED = ("load", "tokenizer", "greedy_reference", "identity", "fidelity")


def check(check_id: str, outcome: str = "pass", **more: Any) -> dict[str, Any]:
    """One check of an envelope."""
    reason = None if outcome == "pass" else "threshold_missed"
    base = {"id": check_id, "version": 1, "outcome": outcome, "reason": reason, "waived": False}
    return base | {"measurements": {}, "thresholds": {}} | more


def failed_fidelity() -> dict[str, Any]:
    """A measured failure with its figure."""
    return check(
        "fidelity", "fail", measurements={"kld_mean_nats": 0.31}, thresholds={"kld_mean_nats_max": 0.01}
    )


def body(data: bytes, architecture: str = "llama", context_tokens: int = 2048) -> dict[str, Any]:
    """The body of a certified envelope about ``data``."""
    sha256 = hashlib.sha256(data).hexdigest()
    return {
        "artifacts": [{"name": "m.gguf", "sha256": sha256, "bytes": len(data)}],
        "model": {"id": "m", "architecture": architecture, "parent_sha256": None, "derivation": None},
        "contracts": dict(CONTRACTS),
        "engine": {"name": "gaugeblock", "version": "0.1.0", "commit": None},
        "scope": {
            "backends": ["cpu"],
            "kernel_sets": ["ref"],
            "activations": "wide",
            "kv": "f16",
            "context_tokens_max": context_tokens,
        },
        "not_measured": ["backend=cuda"],
        "references": [{"name": "llama.cpp", "revision": "b11549"}],
        "checks": [check(name) for name in REQUIRED],
        "digest": None,
        "verdict": "certified",
        "verdict_rule": "v1",
        "manifest_sha256": "0" * 64,
        "report_body_sha256": "1" * 64,
    }


def envelope(body_document: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An envelope around a body, its digest computed."""
    return {
        "schema": "gaugeblock.envelope/1",
        "critical": [],
        "body_sha256": canonical.digest(body_document),
        "body": copy.deepcopy(dict(body_document)),
        "measured": {"date": "2026-11-30T12:00:00Z", "os": "linux", "arch": "x86_64"},
        "supersedes": None,
        "attestations": [],
    } | more


def failing(body_document: dict[str, Any]) -> dict[str, Any]:
    """The same body with fidelity measured to fail."""
    changed = copy.deepcopy(body_document)
    changed["checks"][-1] = failed_fidelity()
    return changed | {"verdict": "outside-envelope"}


def path_of(model: Path) -> Path:
    """Where the sidecar of a model lies."""
    return model.with_name(model.name + ".envelope.json")


def write(model: Path, document: Any) -> Path:
    """Write a document (or bytes) as the sidecar of a model."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    path_of(model).write_bytes(data)
    return path_of(model)
