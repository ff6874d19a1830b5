"""Gaugeblock: a deterministic GGUF inference engine.

The public names below load on first use, so that importing one light module (``engine.errors``,
``engine.canonical``) needs neither numpy nor the C core.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("Gaugeblock does not run on Windows: use Linux, macOS, or WSL 2 on this machine.")

if TYPE_CHECKING:
    from engine.digest import LogitsDigest, logits_digest
    from engine.envelope import Policy, Standing
    from engine.errors import (
        CancelledError,
        ContextOverflow,
        EngineError,
        FileError,
        FormatError,
        ModelError,
        NonFiniteError,
        OutOfMemoryError,
        RefusedError,
        SelfTestError,
        TemplateError,
        UnsupportedError,
        UsageError,
    )
    from engine.generate import Piece, Sampling
    from engine.model import Header, Model, RuntimeConfig
    from engine.session import Entry, Session
    from engine.template import Rendered, Template

_HOMES = {
    "LogitsDigest": "digest",
    "logits_digest": "digest",
    "Policy": "envelope",
    "Standing": "envelope",
    "Piece": "generate",
    "Sampling": "generate",
    "Header": "model",
    "Model": "model",
    "RuntimeConfig": "model",
    "Entry": "session",
    "Session": "session",
    "Rendered": "template",
    "Template": "template",
}

__all__ = [  # noqa: RUF022  # by module
    "LogitsDigest",
    "logits_digest",
    "Policy",
    "Standing",
    "Piece",
    "Sampling",
    "Header",
    "Model",
    "RuntimeConfig",
    "Entry",
    "Session",
    "Rendered",
    "Template",
    "CancelledError",
    "ContextOverflow",
    "EngineError",
    "FileError",
    "FormatError",
    "ModelError",
    "NonFiniteError",
    "OutOfMemoryError",
    "RefusedError",
    "SelfTestError",
    "TemplateError",
    "UnsupportedError",
    "UsageError",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'engine' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"engine.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value
