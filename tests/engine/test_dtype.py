"""Tensor types: gguf.quants is the oracle (bit for bit), libgguf the second witness."""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import gguf
import libgguf
import numpy as np
import pytest
from engine._engine import ffi, lib
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from tests.engine import core

FLOATS = ("F32", "F16", "BF16")
QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
# Byte positions of the f16 scales inside a block.
SCALES = {
    "Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip
# Zeros, subnormals (least, greatest), least normal, one, greatest, infinities, quiet and signalling NaN.
EXTREME_F16 = (
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF,
    0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01,
)  # fmt: skip

Blocks = NDArray[np.uint8]
Floats = NDArray[np.float32]


def number(name: str) -> GGMLQuantizationType:
    return GGMLQuantizationType[name]


def random_blocks(name: str, count: int, seed: int) -> Blocks:
    """[count, block bytes] of arbitrary bytes: every code, and f16 scales of every kind."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, GGML_QUANT_SIZES[number(name)][1]), dtype=np.uint8)


def extreme_blocks(name: str) -> Blocks:
    """Random codes under every combination of extreme scales."""
    places = SCALES[name]
    grid = np.array(np.meshgrid(*[EXTREME_F16] * len(places))).reshape(len(places), -1)
    blocks = random_blocks(name, grid.shape[1], 5)
    for place, values in zip(places, grid, strict=True):
        blocks[:, place : place + 2] = values.astype("<u2").view(np.uint8).reshape(-1, 2)
    return blocks


def finite_blocks(name: str, count: int, seed: int) -> Blocks:
    """Random blocks whose scales are finite: the top exponent bit is cleared where all are set."""
    blocks = random_blocks(name, count, seed)
    for place in SCALES[name]:
        high = blocks[:, place + 1]
        high[(high & 0x7C) == 0x7C] &= 0xBF
    return blocks


def decode(name: str, blocks: Blocks) -> Floats:
    """What the engine makes of the blocks: [values] f32."""
    values = np.full(len(blocks) * GGML_QUANT_SIZES[number(name)][0], 7.25, np.float32)
    err = ffi.new("char[512]")
    status = lib.engine_dequantize(
        number(name), ffi.from_buffer(blocks), blocks.size, values.size, ffi.from_buffer("float[]", values),
        err, 512,
    )  # fmt: skip
    assert status == 0, ffi.string(err)
    return values


def oracle(name: str, blocks: Blocks) -> Floats:
    """The same from the gguf package."""
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(blocks, number(name)).astype(np.float32).ravel()


def assert_same_bits(got: Floats, want: Floats) -> None:
    """Equal bits; of a NaN only that it is one (its payload is not defined by IEEE 754)."""
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


@pytest.mark.parametrize("name", [*FLOATS, *QUANTISED])
def test_names_and_sizes_are_ggml_s(name: str) -> None:
    items, size = GGML_QUANT_SIZES[number(name)]
    assert ffi.string(lib.engine_type_name(number(name))).decode() == name
    assert lib.engine_type_block_items(number(name)) == items
    assert lib.engine_type_block_bytes(number(name)) == size


def test_types_that_only_have_a_size_agree_with_gguf() -> None:
    internal, dtypes = core.load()
    known = 0
    for kind, sizes in GGML_QUANT_SIZES.items():
        row = dtypes.dtype_known(kind)
        if row == internal.NULL:
            continue
        known += 1
        assert internal.string(row.name).decode() == kind.name
        assert (row.items, row.bytes) == sizes
        runs = kind.name in FLOATS or kind.name in QUANTISED
        assert (lib.engine_type_name(kind) != ffi.NULL) == runs
        assert (dtypes.dtype_find(kind) != internal.NULL) == runs
        assert (lib.engine_type_block_bytes(kind) != 0) == runs
    assert known >= 31
    for unknown in (-1, 4, 5, 31, 32, 33, 36, 37, 38, 1000, 2**31 - 1):
        assert dtypes.dtype_known(unknown) == internal.NULL
        assert lib.engine_type_name(unknown) == ffi.NULL


@pytest.mark.parametrize("name", QUANTISED)
def test_random_blocks_decode_bit_for_bit(name: str) -> None:
    blocks = random_blocks(name, 4000, 1)
    assert_same_bits(decode(name, blocks), oracle(name, blocks))


@pytest.mark.parametrize("name", QUANTISED)
def test_extreme_scales_decode_bit_for_bit(name: str) -> None:
    blocks = extreme_blocks(name)
    assert_same_bits(decode(name, blocks), oracle(name, blocks))


@pytest.mark.parametrize("name", QUANTISED)
def test_libgguf_is_the_second_witness(name: str) -> None:
    """ggml's C code may fuse its multiply and add, so only values without a minimum are bit-equal."""
    blocks = finite_blocks(name, 2000, 2)
    items = GGML_QUANT_SIZES[number(name)][0]
    witness = np.asarray(libgguf.dequantize_rows(blocks, int(number(name)), items)).ravel()
    got = decode(name, blocks)
    if core_row(name).has_min:
        step = np.abs(np.spacing(got)).astype(np.float64)
        assert (np.abs(got.astype(np.float64) - witness) <= step).all()
    else:
        assert_same_bits(got, witness.astype(np.float32))


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_weights_decode_close_to_what_they_were(name: str) -> None:
    """Blocks as a quantiser writes them: the error is far below the values (0.6 for two bits)."""
    rows = np.random.default_rng(3).standard_normal((16, 512), dtype=np.float32)
    packed = np.asarray(libgguf.quantize_rows(rows, int(number(name)))).view(np.uint8)
    blocks = packed.reshape(-1, GGML_QUANT_SIZES[number(name)][1])
    got = decode(name, blocks)
    assert_same_bits(got, oracle(name, blocks))
    error = float(np.sqrt(np.mean((got - rows.ravel()) ** 2)))
    assert error < {"Q2_K": 0.6, "Q3_K": 0.25}.get(name, 0.12)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="rounding modes have other numbers there")
@pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00])  # downward, upward, toward zero
def test_another_rounding_mode_changes_nothing_and_is_restored(mode: int) -> None:
    libm = ctypes.CDLL("libm.so.6")
    for name in ("Q4_1", "Q5_K"):
        blocks = finite_blocks(name, 200, 8)
        want, values = decode(name, blocks), np.zeros(200 * GGML_QUANT_SIZES[number(name)][0], np.float32)
        source, target, kind = ffi.from_buffer(blocks), ffi.from_buffer("float[]", values), int(number(name))
        try:
            assert libm.fesetround(mode) == 0
            lib.engine_dequantize(kind, source, blocks.size, values.size, target, ffi.NULL, 0)
            kept = libm.fegetround()
        finally:
            libm.fesetround(0)
        assert kept == mode
        assert_same_bits(values, want)


def test_every_f16_and_bf16_code() -> None:
    codes = np.arange(65536, dtype="<u2").view(np.uint8).reshape(-1, 2)
    for name in ("F16", "BF16"):
        got, want = decode(name, codes), oracle(name, codes)
        assert_same_bits(got, want)


def test_f16_nan_keeps_sign_and_payload() -> None:
    codes = np.concatenate([np.arange(0x7C01, 0x8000), np.arange(0xFC01, 0x10000)]).astype("<u2")
    bits = decode("F16", codes.view(np.uint8).reshape(-1, 2)).view(np.uint32)
    wide = codes.astype(np.uint32)
    np.testing.assert_array_equal(bits, (wide >> 15 << 31) | 0x7F800000 | (wide & 0x3FF) << 13)


def test_f32_is_copied_with_its_payloads() -> None:
    blocks = random_blocks("F32", 100_000, 4)
    np.testing.assert_array_equal(decode("F32", blocks).view(np.uint8).reshape(-1, 4), blocks)


def test_f32_to_f16_rounds_to_nearest_even() -> None:
    """All f16 values, all midpoints between neighbours, both sides of each, and random patterns."""
    _, dtypes = core.load()
    codes = np.arange(0x7C00, dtype=np.uint16)
    values = codes.view(np.float16).astype(np.float32)
    middles = (values[:-1] + values[1:]) / 2  # exact: one bit more than f16 has
    edges = np.array([65519.996, 65520.0, 65520.004, 1e30, np.inf, np.nan], np.float32)
    cases = np.concatenate([values, middles, edges])
    cases = np.concatenate(
        [cases, np.nextafter(cases, np.float32(0)), np.nextafter(cases, np.float32(np.inf))]
    )
    cases = np.concatenate([cases, -cases])
    noise = np.random.default_rng(6).integers(0, 2**32, 50_000, dtype=np.uint32).view(np.float32)
    cases = np.concatenate([cases, noise])
    got = np.array([dtypes.gb_f32_to_f16(x) for x in cases.tolist()], np.uint16)
    with np.errstate(all="ignore"):
        want = cases.astype(np.float16)
    nan = np.isnan(want)
    np.testing.assert_array_equal(got[~nan], want.view(np.uint16)[~nan])
    assert np.isnan(got.view(np.float16)[nan]).all()


def core_row(name: str) -> Any:
    return core.load()[1].dtype_find(number(name))


def canonical(
    name: str, blocks: Blocks
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """What block32 gives for all blocks of 32: codes [n, 32], scales D [n, 2] and addends M [n, 2]."""
    internal, _ = core.load()
    row = core_row(name)
    count = len(blocks) * (row.items // 32)
    out = internal.new("dtype_block32 *")
    codes, D, M = np.empty((count, 32), np.int64), np.empty((count, 2)), np.empty((count, 2))
    source = internal.from_buffer(blocks)
    for b in range(count):
        row.block32(source, b, out)
        codes[b], D[b], M[b] = list(out.c), list(out.D), list(out.M)
    return codes, D, M


def f16(blocks: Blocks, place: int) -> NDArray[np.float64]:
    return blocks[:, place : place + 2].copy().view(np.float16).astype(np.float64)[:, 0]


def expected_scales(name: str, blocks: Blocks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """D and M [blocks of 32, 2] in float64, where every product is exact, from the raw bytes."""
    wide = blocks.astype(np.int64)
    n = len(blocks)
    d = f16(blocks, SCALES[name][0])[:, None]
    m = f16(blocks, SCALES[name][1])[:, None] if len(SCALES[name]) == 2 else np.zeros((n, 1))
    if name in ("Q2_K", "Q3_K", "Q6_K"):
        if name == "Q2_K":
            scales, minima = wide[:, :16] & 15, wide[:, :16] >> 4
        elif name == "Q6_K":
            scales, minima = blocks[:, 192:208].view(np.int8).astype(np.int64), np.zeros((n, 16), np.int64)
        else:
            packed = np.concatenate([wide[:, 96:104] & 15, wide[:, 96:104] >> 4], axis=1)
            top = np.concatenate([wide[:, 104:108] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
            scales, minima = (packed | top << 4) - 32, np.zeros((n, 16), np.int64)
        return (d * scales).reshape(-1, 2), (-(m * minima)).reshape(-1, 2)
    if name in ("Q4_K", "Q5_K"):
        scales, minima = gguf.quants.Q4_K.get_scale_min(blocks[:, 4:16].copy())
        D, M = d * scales.astype(np.float64), -(m * minima.astype(np.float64))
    else:
        D, M = d, m
    return np.repeat(D.reshape(-1, 1), 2, axis=1), np.repeat(M.reshape(-1, 1), 2, axis=1)


OFFSETS = {"Q4_0": (-8, 7), "Q4_1": (0, 15), "Q5_0": (-16, 15), "Q5_1": (0, 31), "Q8_0": (-128, 127),
           "Q2_K": (0, 3), "Q3_K": (-4, 3), "Q4_K": (0, 15), "Q5_K": (0, 31), "Q6_K": (-32, 31)}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
def test_canonical_blocks_are_exact(name: str) -> None:
    """D and M are exact in f32, codes fill their range, and c*D + M, rounded once, is the value."""
    blocks = np.concatenate([finite_blocks(name, 120, 7), extreme_finite(name)])
    codes, D, M = canonical(name, blocks)
    want_D, want_M = expected_scales(name, blocks)
    np.testing.assert_array_equal(D, want_D)
    np.testing.assert_array_equal(M, want_M)
    assert (codes.min(), codes.max()) == OFFSETS[name]
    row = core_row(name)
    assert row.has_min == bool(M.any())
    assert row.halves == (1 if (D[:, 0] == D[:, 1]).all() else 2)
    # At most 51 bits between 2^-24 and 2^27, so this float64 sum is exact.
    exact = codes * np.repeat(D, 16, axis=1) + np.repeat(M, 16, axis=1)
    np.testing.assert_array_equal(decode(name, blocks), exact.ravel().astype(np.float32))


def extreme_finite(name: str) -> Blocks:
    blocks = extreme_blocks(name)
    finite = np.all([np.isfinite(f16(blocks, place)) for place in SCALES[name]], axis=0)
    return blocks[finite]


def refusal(kind: int, src: Any, src_bytes: int, n: int) -> tuple[int, str]:
    err = ffi.new("char[512]")
    out = ffi.new("float[512]")
    return lib.engine_dequantize(kind, src, src_bytes, n, out, err, 512), ffi.string(err).decode()


@pytest.mark.parametrize(
    ("kind", "src_bytes", "n", "status", "text"),
    [
        (4, 18, 32, lib.ENGINE_EUNSUPPORTED, "tensor type 4 (unknown) is not one that this engine decodes"),
        (20, 18, 32, lib.ENGINE_EUNSUPPORTED, "tensor type 20 (IQ4_NL) is not one that this engine decodes"),
        (-1, 18, 32, lib.ENGINE_EUNSUPPORTED, "tensor type -1 (unknown)"),
        (2, 18, 31, lib.ENGINE_EINVAL, "31 values are no multiple of Q4_0's block of 32"),
        (12, 144, 32, lib.ENGINE_EINVAL, "32 values are no multiple of Q4_K's block of 256"),
        (
            2,
            17,
            32,
            lib.ENGINE_EINVAL,
            "32 values of type Q4_0 take 1 blocks of 18 bytes, but the source has 17",
        ),
        (2, 36, 32, lib.ENGINE_EINVAL, "but the source has 36 bytes"),
        (0, 4, 2**62 + 1, lib.ENGINE_EINVAL, "but the source has 4 bytes"),
        (8, 0, 2**63, lib.ENGINE_EINVAL, "but the source has 0 bytes"),
    ],
)
def test_refusals(kind: int, src_bytes: int, n: int, status: int, text: str) -> None:
    got, message = refusal(kind, ffi.new("char[256]"), src_bytes, n)
    assert got == status
    assert text in message


def test_null_is_refused_and_nothing_is_fine() -> None:
    assert refusal(2, ffi.NULL, 18, 32) == (lib.ENGINE_EINVAL, "source and output must not be NULL")
    assert refusal(2, ffi.NULL, 0, 0)[0] == lib.ENGINE_OK
