"""Golden digests: this build computes what was committed, whatever the threads, batches and steps.

A difference means that a bit of the arithmetic has changed. If that was the intention, the
contract revision changes too, and ``python -m tests.golden.record`` writes new digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine._engine import ffi, lib

from fixtures import tiny
from tests.engine.evaluation import digest, opened
from tests.engine.test_forward_oracle import REAL, prompt
from tests.golden.record import POSITIONS, REAL_FILE, TINY, digests, modes

# Ways of computing the same logits. Steps are KV continuation.
VARIANTS: dict[str, dict[str, Any]] = {
    "batch=1": {"batch": 1},
    "batch=7, threads=2": {"batch": 7, "threads": 2},
    "batch=64, threads=3": {"batch": 64, "threads": 3},
    "steps": {"steps": (1, 2, 60, 70, 7), "threads": 2},
    "one by one": {"steps": (1,) * POSITIONS},
    "beside another sequence": {"beside": [5] * 100, "threads": 3, "batch": 33},
}


def golden(path: Path) -> dict[str, Any]:
    """The committed digests by model, of this contract revision."""
    text = json.loads(path.read_text(encoding="utf-8"))
    assert text["numerics"] == ffi.string(lib.engine_numerics()).decode()
    models: dict[str, Any] = text["models"]
    return models


def test_every_tiny_model_has_every_mode() -> None:
    expected = {n: [f"{a}/{kv}" for a, kv in modes(m.head_dim)] for n, m in tiny.MODELS.items()}
    assert {n: list(g["digests"]) for n, g in golden(TINY).items()} == expected


@pytest.mark.parametrize("name", tiny.NAMES)
def test_tiny(name: str, tiny_model: Callable[[str], Path]) -> None:
    expected, path = golden(TINY)[name], tiny_model(name)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == expected["file_sha256"]
    with opened(path) as core:
        assert digests(core, tiny.MODELS[name].head_dim, POSITIONS) == expected["digests"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", tiny.NAMES)
def test_tiny_in_every_way(name: str, variant: str, tiny_model: Callable[[str], Path]) -> None:
    expected = golden(TINY)[name]["digests"]
    with opened(tiny_model(name)) as core:
        for activations in ("wide", "int8"):
            ids = prompt(core.vocab, POSITIONS)
            rows = core.logits(ids, activations=activations, kv="f16", **VARIANTS[variant])
            assert digest(rows, activations, "f16") == expected[f"{activations}/f16"]


@pytest.mark.parametrize("name", tiny.NAMES)
def test_a_long_prompt_is_that_of_short_batches(name: str, tiny_model: Callable[[str], Path]) -> None:
    """Rows enough that attention takes each worker's rows through all chunks by themselves."""
    with opened(tiny_model(name)) as core:
        ids = prompt(core.vocab, 500)
        for kv in dict.fromkeys(kv for _, kv in modes(tiny.MODELS[name].head_dim)):
            expected = digest(core.logits(ids, kv=kv, batch=50), "wide", kv)
            for threads in (1, 2):
                rows = core.logits(ids, kv=kv, batch=512, threads=threads)
                assert digest(rows, "wide", kv) == expected, f"{kv}, {threads} threads"


@pytest.mark.models
@pytest.mark.parametrize("name", REAL)
def test_real(name: str, real_model: Callable[[str], Path]) -> None:
    path = real_model(name)
    expected = golden(REAL_FILE)[name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == expected["file_sha256"]
    with opened(path) as core:
        assert digests(core, 32, 64) == expected["digests"]
