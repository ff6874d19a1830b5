"""Two implementations of docs/numerics.md, one digest: the engine's C and numpy agree to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from fixtures import tiny
from tests.engine.evaluation import opened
from tests.engine.test_forward_oracle import REAL, prompt
from tests.oracle import f64
from tests.oracle.f32 import exp, fma
from tests.oracle.second_implementation import Second

MODES = (("wide", "f16"), ("int8", "f16"), ("f32", "f32"))
LONG = ("llama-odd", "qwen2-q4_k_m", "gemma3-q8_0", "gemma3-scaled-f16")


def assert_bits_equal(path: Path, n: int, activations: str, kv: str) -> None:
    """Every logit of ``n`` positions, bit for bit."""
    with opened(path) as core:
        ids = prompt(core.vocab, n)
        ours = core.logits(ids, activations=activations, kv=kv)
    theirs = Second(path, activations, kv).logits(ids)
    differ = ours.view(np.uint32) != theirs.view(np.uint32)
    assert not differ.any(), (
        f"{differ.sum()} of {differ.size} logits differ, first at {np.argwhere(differ)[0]}"
    )


@pytest.mark.parametrize(("activations", "kv"), MODES)
@pytest.mark.parametrize("name", tiny.NAMES)
def test_every_model(name: str, activations: str, kv: str, tiny_model: Callable[[str], Path]) -> None:
    assert_bits_equal(tiny_model(name), 20, activations, kv)


@pytest.mark.parametrize("name", ["llama-q4_0", "gemma3-f32"])
def test_two_chunks_and_a_window(name: str, tiny_model: Callable[[str], Path]) -> None:
    assert_bits_equal(tiny_model(name), 140, "wide", "f16")


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_three_chunks_and_every_window(name: str, tiny_model: Callable[[str], Path]) -> None:
    assert_bits_equal(tiny_model(name), 290, "wide", "f16")


@pytest.mark.parametrize("name", ["llama-q4_1", "qwen3-q8_0"])
def test_quantised_kv(name: str, tiny_model: Callable[[str], Path]) -> None:
    assert_bits_equal(tiny_model(name), 135, "wide", "q8")


def test_comparison_can_fail(tiny_model: Callable[[str], Path]) -> None:
    """The modes differ from each other, so equality above is no accident."""
    path = tiny_model("llama-q4_1")
    one = Second(path, "wide", "f16").logits([1, 2, 3])
    for activations, kv in (("int8", "f16"), ("f32", "f16"), ("wide", "f32"), ("wide", "q8")):
        assert not np.array_equal(Second(path, activations, kv).logits([1, 2, 3]), one)


def test_fma_rounds_once() -> None:
    """Cases in which rounding the product, or rounding twice, gives another float."""
    a, one = np.float32(1 + 2**-23), np.float32(1)
    assert fma(a, a, -one) == np.float32(2**-22 + 2**-46)  # the product's tail survives
    # 1 + 2**-24 + 2**-70: rounding to binary64 first leaves the tie 1 + 2**-24, which goes to 1.
    tie = fma(np.float32(2**-24), np.float32(1 + 2**-23), one)
    assert tie == np.float32(1 + 2**-23)
    small = fma(np.float32(2**-40), np.float32(2**-30), np.float32(1 + 2**-23))
    assert small == np.float32(1 + 2**-23)
    halfway = fma(np.float32(2**-12), np.float32(2**-12), np.float32(1 + 2**-23))
    assert halfway == np.float32(1 + 2**-22)
    below = fma(np.float32(-(2.0**-60)), np.float32(2**-60), halfway - np.float32(0))
    assert below == halfway


def test_fma_equals_exact_rational_arithmetic() -> None:
    """Random patterns, a third of them near cancellation, against Python's exact fractions."""
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=4000).astype(np.float32) for _ in range(2))
    c = np.where(
        np.arange(4000) % 3 == 0, -(a * b), rng.normal(size=4000) * 2.0 ** rng.integers(-60, 20, 4000)
    )
    c = c.astype(np.float32)
    found = fma(a, b, c)
    for x, y, z, f in zip(a, b, c, found, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        around = [np.nextafter(f, np.float32(-np.inf)), f, np.nextafter(f, np.float32(np.inf))]
        errors = [abs(Fraction(float(g)) - exact) for g in around]
        assert errors[1] == min(errors)
        if errors[1] in (errors[0], errors[2]):  # a tie: to even
            assert not f.view(np.uint32) & 1


def test_exp_is_near_float64() -> None:
    x = -np.linspace(0, 87, 20001).astype(np.float32)
    error = np.abs(exp(x) / np.exp(x.astype(np.float64)) - 1)
    assert error.max() < 3e-7
    assert exp(np.array([-87.5, -200], np.float32)).tolist() == [0, 0]


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.5, 1.0, 1.5707963267948966, 3.0, 100.0, 1023.0, 12345.678, -7.25])
def test_f64_functions_are_near_the_libm(x: float) -> None:
    assert f64.sincos(x) == pytest.approx((math.sin(x), math.cos(x)), abs=4e-16)
    assert f64.exp(-abs(x) / 20) == pytest.approx(math.exp(-abs(x) / 20), rel=2e-15)
    assert f64.log(abs(x) + 0.1) == pytest.approx(math.log(abs(x) + 0.1), rel=1e-15, abs=1e-16)
    assert f64.power(10000.0, -abs(x) / 2e4) == pytest.approx(10000.0 ** (-abs(x) / 2e4), rel=4e-15)


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str, real_model: Callable[[str], Path]) -> None:
    """Five positions of each real model, bit for bit."""
    assert_bits_equal(real_model(name), 5, "wide", "f16")
