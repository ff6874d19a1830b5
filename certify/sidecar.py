"""A valid sidecar for timing: what a start costs when there is a receipt to read and bytes to hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine import canonical, envelope
from engine.contracts import contracts
from engine.model import Header, RuntimeConfig
from engine.verdict import RULE

NOT_A_CERTIFICATE = "written by the performance check to time a start; it certifies nothing"


def beside_sidecar(header: Header, config: RuntimeConfig, folder: Path) -> Path:
    """Link the model into ``folder`` and put a receipt beside it that binds it: experimental."""
    path = folder / header.path.name
    if not path.exists():
        path.symlink_to(header.path.absolute())
        sidecar = path.with_name(path.name + envelope.SUFFIX)
        sidecar.write_text(json.dumps(_document(header, config)), encoding="utf-8")
    return path


def _document(header: Header, config: RuntimeConfig) -> dict[str, Any]:
    body = _body(header, config)
    return {
        "schema": envelope.SCHEMA,
        "critical": [],
        "body_sha256": canonical.digest(body),
        "body": body,
        "measured": {"date": "1970-01-01T00:00:00Z", "os": "any", "arch": "any"},
        "supersedes": None,
        "attestations": [],
    }


def _body(header: Header, config: RuntimeConfig) -> dict[str, Any]:
    load = {"id": "load", "version": 1, "outcome": "pass", "reason": None, "waived": False}
    return {
        "artifacts": [
            {"name": header.path.name, "sha256": header.sha256(), "bytes": header.size_bytes},
        ],
        "model": {
            "id": "timing",
            "architecture": header.metadata["general.architecture"],
            "parent_sha256": None,
            "derivation": NOT_A_CERTIFICATE,
        },
        "contracts": {name: contracts()[name] for name in ("numerics", "tokenizer", "template")},
        "engine": {"name": "gaugeblock", "version": "0", "commit": None},
        "scope": {
            "backends": ["cpu"],
            "kernel_sets": [],
            "activations": config.activations,
            "kv": config.kv,
            "context_tokens_max": config.context_tokens,
        },
        "not_measured": [],
        "references": [],
        "checks": [load | {"measurements": {}, "thresholds": {}}],
        "digest": None,
        "verdict": "experimental",
        "verdict_rule": RULE,
        "manifest_sha256": "0" * 64,
        "report_body_sha256": "0" * 64,
    }
