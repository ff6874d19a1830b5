"""The forward pass against an independent float64 one, for every tiny model and the real ones.

``activations: f32`` must agree to the rounding of f32 arithmetic. ``wide`` and ``int8`` are held
to bounds a few times above what they measure, far below what any dropped or misplaced term does
to these models: see ``tests/oracle/test_float64_forward.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fixtures import tiny
from tests.engine.evaluation import opened
from tests.oracle import float64_forward
from tests.oracle.float64_forward import log_softmax

REAL = ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf")
PROMPT = 64
F32_MAX_DELTA = 5e-4


def prompt(vocab: int, n: int = PROMPT) -> list[int]:
    """A fixed sequence of ids that wanders over the whole vocabulary."""
    return [(i * i * 7919 + i * 104729 + 17) % vocab for i in range(n)]


@cache
def oracle(path: Path, n: int = PROMPT) -> npt.NDArray[np.float64]:
    """The oracle's logits [n, vocab], computed once a session."""
    vocab = float64_forward.File(path).row_count("token_embd.weight")
    return float64_forward.logits(path, prompt(vocab, n))


def mean_kld(p_logits: npt.NDArray[np.float64], q_logits: npt.NDArray[np.float64]) -> float:
    """KL(p || q) in nats, averaged over positions."""
    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def engine_logits(path: Path, n: int, activations: str, kv: str) -> npt.NDArray[np.float64]:
    """Our logits of the same prompt."""
    with opened(path) as core:
        return core.logits(prompt(core.vocab, n), activations=activations, kv=kv).astype(np.float64)


def check_f32(path: Path, n: int = PROMPT) -> None:
    """The yardstick mode: every logit, every argmax."""
    expected, found = oracle(path, n), engine_logits(path, n, "f32", "f32")
    assert np.abs(found - expected).max() <= F32_MAX_DELTA
    assert (found.argmax(-1) == expected.argmax(-1)).all()


@pytest.mark.parametrize("name", tiny.NAMES)
def test_f32_equals_float64(name: str, tiny_model: Callable[[str], Path]) -> None:
    check_f32(tiny_model(name))


@pytest.mark.parametrize("name", ["llama-q4_k_m", "llama-odd", "gemma3-q8_0", "gemma3-scaled-f16"])
def test_f32_equals_float64_beyond_windows_and_chunks(name: str, tiny_model: Callable[[str], Path]) -> None:
    """300 positions: three attention chunks, and past the widest window (160)."""
    check_f32(tiny_model(name), 300)


# Mean KL(float64 || ours) in nats over 64 positions. Random weights are a harder case than trained ones.
BOUNDS = {("wide", "f32"): 3e-6, ("wide", "f16"): 1e-4, ("int8", "f32"): 0.05, ("int8", "f16"): 0.05}


@pytest.mark.parametrize(("activations", "kv"), BOUNDS)
@pytest.mark.parametrize("name", tiny.NAMES)
def test_quantised_activations_stay_near(
    name: str, activations: str, kv: str, tiny_model: Callable[[str], Path]
) -> None:
    path = tiny_model(name)
    kld = mean_kld(oracle(path), engine_logits(path, PROMPT, activations, kv))
    assert kld <= BOUNDS[activations, kv]


@pytest.mark.models
@pytest.mark.parametrize("name", REAL)
def test_f32_equals_float64_on_real_models(name: str, real_model: Callable[[str], Path]) -> None:
    check_f32(real_model(name))


@pytest.mark.models
@pytest.mark.parametrize("name", REAL)
def test_wide_is_exact_for_all_purposes_on_real_models(name: str, real_model: Callable[[str], Path]) -> None:
    path = real_model(name)
    assert mean_kld(oracle(path), engine_logits(path, PROMPT, "wide", "f32")) <= 1e-5
