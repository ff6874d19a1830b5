"""The sampler against float64 models of each filter, known answers of its generator, and invariances."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from engine._engine import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

Floats = npt.NDArray[np.float32]
SOURCES = Path(__file__).parents[2] / "engine" / "src"
MASK = 0xFFFFFFFF

# Philox4x32-10 known answers of the Random123 distribution (kat_vectors): counter, key, output.
RANDOM123 = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK, MASK, MASK, MASK), (MASK, MASK), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@dataclass(frozen=True)
class Options:
    """``engine_sampler_options``, all filters and penalties off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0


class Refused(Exception):
    """A status other than ENGINE_OK; ``args`` are the status and its text."""


def _checked(status: int, err: ffi.CData) -> None:
    if status != lib.ENGINE_OK:
        raise Refused(status, ffi.string(err).decode())


def sample(logits: Floats, options: Options, history: tuple[int, ...] = (), draw: int = 0) -> int:
    values = np.ascontiguousarray(logits, np.float32)
    err, token = ffi.new("char[256]"), ffi.new("int32_t *")
    _checked(
        lib.engine_sample(
            ffi.cast("const float *", values.ctypes.data),
            len(values),
            ffi.new("engine_sampler_options *", vars(options)),
            list(history),
            len(history),
            draw,
            token,
            err,
            256,
        ),
        err,
    )
    return int(token[0])


def log_softmax(logits: Floats) -> Floats:
    values = np.ascontiguousarray(logits, np.float32)
    out, err = np.empty_like(values), ffi.new("char[256]")
    source, target = (ffi.cast("float *", a.ctypes.data) for a in (values, out))
    _checked(lib.engine_log_softmax(source, len(values), target, err, 256), err)
    return out


def top(logits: Floats, n: int) -> list[int]:
    values = np.ascontiguousarray(logits, np.float32)
    ids, err = ffi.new("int32_t[]", max(n, 1)), ffi.new("char[256]")
    _checked(lib.engine_top(ffi.cast("float *", values.ctypes.data), len(values), n, ids, err, 256), err)
    return list(ids)[:n]


# ---- Independent models, in Python integers and numpy float64 -------------------------------


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [second >> 32 ^ c[1] ^ k[0], second & MASK, first >> 32 ^ c[3] ^ k[1], first & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return tuple(c)


def uniform(seed: int, draw: int) -> float:
    low, high, _, _ = philox((draw & MASK, draw >> 32, 0, 0), (seed & MASK, seed >> 32))
    return (high << 32 | low) / 2.0**64


def model_probabilities(logits: Floats, o: Options, history: tuple[int, ...] = ()) -> npt.NDArray[np.float64]:
    """Probabilities [vocab] after penalties, temperature, top-k, top-p and min-p."""
    z = logits.astype(np.float64)
    for token in sorted(set(history)):
        z[token] = z[token] / o.repeat_penalty if z[token] > 0 else z[token] * o.repeat_penalty
        z[token] -= history.count(token) * o.frequency_penalty + o.presence_penalty
    p = np.exp((z - z.max()) / o.temperature)
    order = sorted(range(len(z)), key=lambda i: (-z[i], i))
    if o.top_k:
        p[order[o.top_k :]] = 0
    if o.top_p < 1:
        cumulative = np.cumsum(p[order]) / p.sum()
        kept = int(np.searchsorted(cumulative, np.float64(np.float32(o.top_p)), side="left")) + 1
        p[order[kept:]] = 0
    p[p < np.float64(np.float32(o.min_p)) * p.max()] = 0
    return p / p.sum()


def model_token(p: npt.NDArray[np.float64], seed: int, draw: int) -> int | None:
    """The token under the random point, or None where the point lies within 1e-6 of a boundary."""
    point, edges = uniform(seed, draw), np.cumsum(p)
    if np.abs(edges[:-1] - point).min(initial=1.0) < 1e-6:
        return None
    return int(np.searchsorted(edges, point, side="right"))


def some_logits(seed: int, vocab: int, scale: float = 3.0) -> Floats:
    return np.random.default_rng(seed).normal(0, scale, vocab).astype(np.float32)


# ---- The generator --------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "key", "output"), RANDOM123)
def test_model_of_philox_has_the_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], output: tuple[int, ...]
) -> None:
    assert philox(counter, key) == output


def test_philox_in_c_has_the_known_answers(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: install gcc")
    lines = []
    for counter, key, _ in RANDOM123:
        c, k = (", ".join(f"{v}u" for v in words) for words in (counter, key))
        lines.append(f"show((uint32_t[4]){{{c}}}, (uint32_t[2]){{{k}}});")
    (tmp_path / "kat.c").write_text(
        '#include "philox.h"\n#include <stdio.h>\n'
        "static void show(const uint32_t *c, const uint32_t *k) { uint32_t o[4]; gb_philox4x32(c, k, o);"
        ' printf("%u %u %u %u\\n", o[0], o[1], o[2], o[3]); }\n'
        "int main(void) { " + " ".join(lines) + " return 0; }\n"
    )
    program = tmp_path / "kat"
    subprocess.run([compiler, "-std=c11", f"-I{SOURCES}", "-o", program, tmp_path / "kat.c"], check=True)
    out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert [tuple(map(int, line.split())) for line in out.splitlines()] == [o for _, _, o in RANDOM123]


@given(seed=st.integers(0, 2**64 - 1), draw=st.integers(0, 2**64 - 1))
def test_draw_is_the_high_bits_of_philox(seed: int, draw: int) -> None:
    """Equal logits over 2**16 tokens lay the generator's 16 highest bits open."""
    logits = np.zeros(1 << 16, np.float32)
    high = philox((draw & MASK, draw >> 32, 0, 0), (seed & MASK, seed >> 32))[1]
    assert sample(logits, Options(seed=seed), draw=draw) == high >> 16


# ---- Filters and penalties ------------------------------------------------------------------------

CASES = {
    "plain": (Options(), ()),
    "cold": (Options(temperature=0.3), ()),
    "hot": (Options(temperature=2.5), ()),
    "top_k": (Options(top_k=5), ()),
    "top_k_1": (Options(top_k=1), ()),
    "top_p": (Options(top_p=0.8), ()),
    "top_p_0": (Options(top_p=0.0), ()),
    "min_p": (Options(min_p=0.1), ()),
    "all": (Options(temperature=1.4, top_k=20, top_p=0.9, min_p=0.05), ()),
    "top_p_of_top_k": (Options(temperature=3.0, top_k=8, top_p=0.5), ()),
    "repeat": (Options(repeat_penalty=1.7), (3, 5, 5, 7, 11, 11, 11)),
    "frequency": (Options(frequency_penalty=0.9), (3, 5, 5, 7, 11, 11, 11)),
    "presence": (Options(presence_penalty=1.5), (3, 5, 5, 7, 11, 11, 11)),
    "penalties": (
        Options(0.9, 30, 0.95, 0.01, repeat_penalty=1.2, frequency_penalty=0.3, presence_penalty=-0.4),
        (1, 1, 2, 60, 60, 60, 60),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_draw_equals_the_float64_model(case: str) -> None:
    options, history = CASES[case]
    compared = 0
    for trial in range(12):
        logits = some_logits(trial, 97)
        p = model_probabilities(logits, options, history)
        seeded = replace(options, seed=trial * 1000003)
        for draw in range(50):
            expected = model_token(p, seeded.seed, draw)
            if expected is not None:
                assert sample(logits, seeded, history, draw) == expected
                compared += 1
    assert compared > 590


@pytest.mark.parametrize("case", CASES)
def test_distribution_by_chi_square(case: str) -> None:
    """4,000 draws of a fixed seed; the 99.99 % quantile by Wilson and Hilferty."""
    options, history = CASES[case]
    logits = some_logits(99, 97, 1.5)
    p = model_probabilities(logits, options, history)
    n = 4000
    seen = np.bincount([sample(logits, replace(options, seed=5), history, d) for d in range(n)], minlength=97)
    assert not seen[p == 0].any()
    big = p * n >= 5
    expected = np.append(p[big], p[~big].sum()) * n
    found = np.append(seen[big], seen[~big].sum())
    some = expected > 0
    statistic = float(((found - expected)[some] ** 2 / expected[some]).sum())
    freedom = max(int(some.sum()) - 1, 1)
    bound = freedom * (1 - 2 / (9 * freedom) + 3.72 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert statistic < bound


def test_ties_go_to_the_lower_id() -> None:
    logits = np.array([1, 4, 4, 0, 4], np.float32)
    assert sample(logits, Options(temperature=0)) == 1
    assert {sample(logits, Options(top_k=2), draw=d) for d in range(200)} == {1, 2}
    assert {sample(logits, Options(top_p=0.5), draw=d) for d in range(200)} == {1, 2}
    assert top(logits, 5) == [1, 2, 4, 0, 3]
    assert top(np.array([-0.0, 0.0, -1.0], np.float32), 3) == [0, 1, 2]


def test_greedy_ignores_filters_and_heeds_penalties() -> None:
    logits = some_logits(3, 200)
    best = int(logits.argmax())
    assert sample(logits, Options(temperature=0, top_k=3, top_p=0.1, min_p=0.9, seed=9), draw=4) == best
    runner_up = int(np.argsort(-logits, kind="stable")[1])
    assert sample(logits, Options(temperature=0, presence_penalty=50), (best,)) == runner_up


def test_repeat_penalty_counts_a_token_once() -> None:
    logits = some_logits(4, 50)
    options = Options(repeat_penalty=1.5)
    once = [sample(logits, options, (3, 9), d) for d in range(100)]
    assert once == [sample(logits, options, (9, 3, 3, 9, 3), d) for d in range(100)]


def test_positive_and_negative_logits_are_both_made_less_likely() -> None:
    p = model_probabilities(np.array([2.0, -2.0, 0.5], np.float32), Options(repeat_penalty=2.0), (0, 1))
    plain = model_probabilities(np.array([2.0, -2.0, 0.5], np.float32), Options())
    assert p[0] < plain[0]
    assert p[1] < plain[1]


@given(
    seed=st.integers(0, 1000),
    k=st.integers(1, 40),
    p=st.floats(0.0, 1.0, width=32),
    m=st.floats(0.0, 1.0, width=32),
    draw=st.integers(0, 2**40),
)
def test_filters_only_remove(seed: int, k: int, p: float, m: float, draw: int) -> None:
    """A filtered draw is a token that each filter alone allows, and never one outside the k best."""
    logits = some_logits(seed, 40)
    token = sample(logits, Options(top_k=k, top_p=p, min_p=m, seed=seed), draw=draw)
    rank = top(logits, 40).index(token)
    assert rank < k
    e = np.exp(logits.astype(np.float64) - logits.max())
    assert e[token] >= m * (1 - 1e-5)
    better = top(logits, 40)[:rank]
    assert rank == 0 or e[better].sum() < p * e[top(logits, 40)[:k]].sum() * (1 + 1e-5)


@given(st.integers(0, 10_000), st.integers(2, 300), st.integers(0, 2**64 - 1))
def test_filters_that_keep_everything_change_nothing(seed: int, vocab: int, draw: int) -> None:
    logits = some_logits(seed, vocab)
    plain = sample(logits, Options(seed=seed), draw=draw)
    assert sample(logits, Options(seed=seed, top_k=vocab + 5), draw=draw) == plain
    assert sample(logits, Options(seed=seed, top_k=vocab), draw=draw) == plain
    assert sample(logits, Options(seed=seed, repeat_penalty=1.3), (), draw) == plain
    # Adding a power of two to logits of few bits is exact, and cannot matter.
    coarse = np.round(logits * 8) / np.float32(8)
    assert sample(coarse, Options(seed=seed), draw=draw) == sample(coarse + 64, Options(seed=seed), draw=draw)


def test_draws_do_not_depend_on_each_other() -> None:
    logits, options = some_logits(8, 500), Options(temperature=1.5, seed=77)
    forwards = [sample(logits, options, draw=d) for d in range(64)]
    assert [sample(logits, options, draw=d) for d in reversed(range(64))] == forwards[::-1]
    assert len(set(forwards)) > 20


def test_large_vocabulary() -> None:
    logits = some_logits(12, 262144, 2.0)
    options = Options(temperature=1.0, top_p=0.7, seed=6)
    p = model_probabilities(logits, options)
    expected = [model_token(p, 6, d) for d in range(20)]
    found = [sample(logits, options, draw=d) for d in range(20)]
    pairs = [(e, f) for e, f in zip(expected, found, strict=True) if e is not None]
    assert len(pairs) > 10
    # The nucleus' edge may differ by an entry between f32 and float64: shares move by 1e-7.
    assert all(e == f for e, f in pairs)


# ---- Log-probabilities and ranking ----------------------------------------------------------------


@pytest.mark.parametrize("vocab", [1, 2, 97, 49152, 262144])
@pytest.mark.parametrize("scale", [0.0, 0.01, 3.0, 40.0])
def test_log_softmax_equals_float64(vocab: int, scale: float) -> None:
    logits = some_logits(vocab, vocab, scale)
    wide = logits.astype(np.float64) - logits.max()
    expected = wide - np.log(np.exp(wide).sum())
    error = np.abs(log_softmax(logits) - expected)
    assert (error <= 1e-6 * np.maximum(np.abs(expected), 1.0)).all()


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=60), st.data())
def test_top_equals_a_stable_sort(values: list[float], data: st.DataObject) -> None:
    logits = np.array(values, np.float32)
    n = data.draw(st.integers(0, len(values)))
    assert top(logits, n) == sorted(range(len(values)), key=lambda i: (-logits[i], i))[:n]


@pytest.mark.parametrize("mode", ["downward", "upward", "towards zero"])
def test_another_rounding_mode_of_the_process_changes_nothing(mode: str) -> None:
    """The control word is set on entry and restored on return."""
    name = ctypes.util.find_library("m")
    modes = {"x86_64": (0x400, 0x800, 0xC00), "aarch64": (0x800000, 0x400000, 0xC00000)}
    if name is None or platform.machine() not in modes:
        pytest.skip("fesetround's values are unknown on this machine")
    libm = ctypes.CDLL(name)
    value = modes[platform.machine()][["downward", "upward", "towards zero"].index(mode)]
    logits, options = some_logits(5, 5000), Options(temperature=0.7, top_p=0.9, seed=3)
    expected = log_softmax(logits).tobytes(), [sample(logits, options, (), d) for d in range(50)]
    assert libm.fesetround(value) == 0
    try:
        found = log_softmax(logits).tobytes(), [sample(logits, options, (), d) for d in range(50)]
        assert libm.fegetround() == value
    finally:
        libm.fesetround(0)
    assert found == expected


# ---- Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": -0.5}, "top_p"),
        ({"min_p": float("inf")}, "min_p"),
        ({"repeat_penalty": 0.0}, "repeat_penalty"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty"),
        ({"presence_penalty": float("-inf")}, "presence_penalty"),
    ],
)
def test_options_are_refused_by_name(change: dict[str, float], name: str) -> None:
    with pytest.raises(Refused, match=name) as refusal:
        sample(some_logits(0, 10), replace(Options(), **change))  # type: ignore[arg-type]
    assert refusal.value.args[0] == lib.ENGINE_EINVAL


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_logits_are_refused_with_their_token(value: float) -> None:
    logits = some_logits(0, 10)
    logits[7] = value
    for call in (lambda: sample(logits, Options()), lambda: log_softmax(logits), lambda: top(logits, 2)):
        with pytest.raises(Refused, match="token 7") as refusal:
            call()
        assert refusal.value.args[0] == lib.ENGINE_ENONFINITE


def test_sizes_and_ids_out_of_range_are_refused() -> None:
    logits = some_logits(0, 10)
    with pytest.raises(Refused, match=r"history\[1\] is 10"):
        sample(logits, Options(), (3, 10))
    with pytest.raises(Refused, match=r"history\[0\] is -1"):
        sample(logits, Options(), (-1,))
    with pytest.raises(Refused, match="11 best of 10"):
        top(logits, 11)
    with pytest.raises(Refused, match="vocabulary of 0"):
        sample(np.empty(0, np.float32), Options())


def test_penalties_that_overflow_are_refused() -> None:
    logits = np.array([3e38, 1.0], np.float32)
    with pytest.raises(Refused, match="after penalties") as refusal:
        sample(logits, Options(repeat_penalty=0.25), (0,))
    assert refusal.value.args[0] == lib.ENGINE_ENONFINITE


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 1e6])
def test_extreme_temperatures(temperature: float) -> None:
    logits = some_logits(1, 100)
    tokens = {sample(logits, Options(temperature=temperature), draw=d) for d in range(100)}
    assert (tokens == {int(logits.argmax())}) == (temperature < 1)
