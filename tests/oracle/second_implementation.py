"""A second implementation of ``numerics: gb1``, in numpy, from docs/numerics.md alone.

It shares no code with the engine and must reproduce its logits bit for bit: an oracle of the
document as much as of the engine. Loops run over the elements of a sum, arrays hold different
outputs, so numpy's own order of summation never matters. Runs any tiny model; slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from tests.oracle import f64
from tests.oracle.f32 import F32, exp, f32, fma, gelu_tanh, silu, tree

BLOCK, SEGMENT, CHUNK = 32, 256, 128
CODE_LIMIT = {"wide": 16319, "int8": 127}
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


# ---- Weights: codes and scales per block of 32 -------------------------------------------------


@dataclass(frozen=True)
class Blocks:
    """A quantised matrix: value = D * c + M, with one D and M per half of 16."""

    c: I64  # [rows, blocks, 32]
    D: F32  # [rows, blocks, 2]
    M: F32  # [rows, blocks, 2]
    halves: int  # scales that the dot product applies per block
    has_min: bool


def _f16(raw: U8, at: int) -> F32:
    return raw[..., at : at + 2].copy().view("<f2")[..., 0].astype(np.float32)


def _both(x: F32) -> F32:
    return np.stack([x, x], axis=-1)


def _nibbles(raw: U8) -> I64:
    """Low nibbles of all bytes, then high nibbles."""
    return np.concatenate([raw & 15, raw >> 4], axis=-1).astype(np.int64)


def _bits32(raw: U8) -> I64:
    return np.unpackbits(raw, axis=-1, bitorder="little").astype(np.int64)


def _legacy(raw: U8, at: int, offset: int, fifth_at: int | None, min_at: int | None) -> Blocks:
    """Q4_0, Q4_1, Q5_0, Q5_1: raw is [rows, blocks, bytes]."""
    c = _nibbles(raw[..., at : at + 16])
    if fifth_at is not None:
        c = c + 16 * _bits32(raw[..., fifth_at : fifth_at + 4])
    d = _f16(raw, 0)
    m = np.zeros_like(d) if min_at is None else _f16(raw, min_at)
    return Blocks(c - offset, _both(d), _both(m), 1, min_at is not None)


def _q8_0(raw: U8) -> Blocks:
    d = _f16(raw, 0)
    c = raw[..., 2:34].copy().view(np.int8).astype(np.int64)
    return Blocks(c, _both(d), np.zeros_like(_both(d)), 1, False)


def _scales_mins(raw: U8) -> tuple[I64, I64]:
    """The eight six-bit scales and minimums of Q4_K and Q5_K from their 12 bytes."""
    s = raw.astype(np.int64)
    low, mid, high = s[..., 0:4], s[..., 4:8], s[..., 8:12]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=-1)
    mins = np.concatenate([mid & 63, (high >> 4) | (mid >> 6) << 4], axis=-1)
    return scales, mins


def _q45_k(raw: U8, codes_at: int, fifth_at: int | None) -> Blocks:
    """Q4_K and Q5_K: raw is [rows, superblocks, bytes]."""
    rows, supers = raw.shape[:2]
    q = raw[..., codes_at : codes_at + 128].reshape(rows, supers, 4, 32)
    c = np.stack([q & 15, q >> 4], axis=3).reshape(rows, supers, 8, 32).astype(np.int64)
    if fifth_at is not None:
        fifth = raw[..., fifth_at : fifth_at + 32]
        c = c + 16 * np.stack([fifth >> j & 1 for j in range(8)], axis=2).astype(np.int64)
    scales, mins = _scales_mins(raw[..., 4:16])
    d = _f16(raw, 0)[..., None] * scales.astype(np.float32)
    m = -(_f16(raw, 2)[..., None] * mins.astype(np.float32))
    flat = (rows, supers * 8)
    return Blocks(c.reshape(*flat, 32), _both(d.reshape(flat)), _both(m.reshape(flat)), 1, True)


def _two_bits(raw: U8) -> I64:
    """[…, 64] bytes to codes [rows, superblocks, 8, 32] of two bits."""
    q = raw.reshape(*raw.shape[:2], 2, 1, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 1, 4, 1)
    return (q >> shifts & 3).reshape(*raw.shape[:2], 8, 32).astype(np.int64)


def _q6_k(raw: U8) -> Blocks:
    rows, supers = raw.shape[:2]
    low = raw[..., :128].reshape(rows, supers, 2, 64)
    low = np.stack([low & 15, low >> 4], axis=3).reshape(rows, supers, 8, 32).astype(np.int64)
    c = low + 16 * _two_bits(raw[..., 128:192]) - 32
    scales = raw[..., 192:208].copy().view(np.int8).astype(np.float32)
    d = (_f16(raw, 208)[..., None] * scales).reshape(rows, supers * 8, 2)
    return Blocks(c.reshape(rows, supers * 8, 32), d, np.zeros_like(d), 2, False)


def _q2_k(raw: U8) -> Blocks:
    rows, supers = raw.shape[:2]
    scales = raw[..., :16]
    d = (_f16(raw, 80)[..., None] * (scales & 15).astype(np.float32)).reshape(rows, supers * 8, 2)
    m = -(_f16(raw, 82)[..., None] * (scales >> 4).astype(np.float32)).reshape(rows, supers * 8, 2)
    return Blocks(_two_bits(raw[..., 16:80]).reshape(rows, supers * 8, 32), d, m, 2, True)


def _q3_k(raw: U8) -> Blocks:
    rows, supers = raw.shape[:2]
    third = np.stack([raw[..., :32] >> j & 1 for j in range(8)], axis=2).astype(np.int64)
    c = _two_bits(raw[..., 32:96]) + 4 * third - 4
    s = raw[..., 96:108].astype(np.int64)
    low = np.concatenate([s[..., :8] & 15, s[..., :8] >> 4], axis=-1)
    high = np.concatenate([s[..., 8:12] >> 2 * k & 3 for k in range(4)], axis=-1)
    scales = (low | high << 4) - 32
    d = (_f16(raw, 108)[..., None] * scales.astype(np.float32)).reshape(rows, supers * 8, 2)
    return Blocks(c.reshape(rows, supers * 8, 32), d, np.zeros_like(d), 2, False)


DECODERS: dict[str, tuple[int, Any]] = {
    "Q4_0": (18, lambda r: _legacy(r, 2, 8, None, None)),
    "Q4_1": (20, lambda r: _legacy(r, 4, 0, None, 2)),
    "Q5_0": (22, lambda r: _legacy(r, 6, 16, 2, None)),
    "Q5_1": (24, lambda r: _legacy(r, 8, 0, 4, 2)),
    "Q8_0": (34, _q8_0),
    "Q2_K": (84, _q2_k),
    "Q3_K": (110, _q3_k),
    "Q4_K": (144, lambda r: _q45_k(r, 16, None)),
    "Q5_K": (176, lambda r: _q45_k(r, 48, 16)),
    "Q6_K": (210, _q6_k),
}


# ---- Activations and products --------------------------------------------------------------------


@dataclass(frozen=True)
class Quantised:
    """Rows of activations in blocks of 32."""

    q: I64  # [n, blocks, 32]
    d: F32  # [n, blocks]
    s: F32  # [n, blocks]: d times the sum of q
    sh: F32  # [n, blocks, 2]: the same for each half


def quantise(x: F32, limit: int) -> Quantised:
    """Codes up to ``limit`` and their scales."""
    blocks = x.reshape(len(x), -1, BLOCK)
    amax = np.abs(blocks).max(axis=-1)
    tiny = amax < f32(2.0**-90)
    safe = np.where(tiny, f32(1.0), amax)
    d, inverse = safe / f32(limit), f32(limit) / safe
    magic = f32(12582912.0)
    q = ((blocks * inverse[..., None] + magic) - magic).astype(np.int64)
    q[tiny] = 0
    d = np.where(tiny, f32(0.0), d).astype(np.float32)
    halves = q.reshape(*q.shape[:2], 2, 16).sum(axis=-1)
    whole = halves.sum(axis=-1).astype(np.float32)
    return Quantised(q, d, d * whole, d[..., None] * halves.astype(np.float32))


def product_int(w: Blocks, x: Quantised) -> F32:
    """[n, rows]: blocks ascending within segments of 256 elements, segments ascending."""
    total: F32 | None = None
    blocks = w.c.shape[1]
    for start in range(0, blocks, SEGMENT // BLOCK):
        acc = np.zeros((len(x.q), len(w.c)), np.float32)
        for b in range(start, min(start + SEGMENT // BLOCK, blocks)):
            for h in range(w.halves):
                part = slice(16 * h, 16 * h + 16) if w.halves == 2 else slice(None)
                exact = x.q[:, b, part].astype(np.float64) @ w.c[:, b, part].astype(np.float64).T
                acc = fma(w.D[None, :, b, h] * x.d[:, b, None], exact.astype(np.float32), acc)
                if w.has_min:
                    s = x.sh[:, b, h] if w.halves == 2 else x.s[:, b]
                    acc = fma(w.M[None, :, b, h], s[:, None], acc)
        total = acc if total is None else total + acc
    assert total is not None
    return total


def product_f32(w: F32, x: F32) -> F32:
    """[n, rows] of float weights: elements ascending within segments, segments ascending."""
    total: F32 | None = None
    for start in range(0, w.shape[1], SEGMENT):
        acc = np.zeros((len(x), len(w)), np.float32)
        for k in range(start, min(start + SEGMENT, w.shape[1])):
            acc = fma(w[None, :, k], x[:, k, None], acc)
        total = acc if total is None else total + acc
    assert total is not None
    return total


# ---- The model -------------------------------------------------------------------------------------


class Second:
    """One model file under one activation mode and KV type."""

    def __init__(self, path: Path, activations: str, kv: str) -> None:
        reader = GGUFReader(path)
        self.tensors = {t.name: t for t in reader.tensors}
        self.fields = reader.fields
        self.activations, self.kv = activations, kv
        self.arch = self.get("general.architecture")
        self.heads = self.key("attention.head_count")
        self.kv_heads = self.key("attention.head_count_kv", self.heads)
        self.width = self.key("embedding_length")
        self.dim = self.key("attention.key_length", self.width // self.heads)
        self.eps = f32(self.key("attention.layer_norm_rms_epsilon"))
        self.window = self.key("attention.sliding_window", 0)
        self.rotations: dict[bool, tuple[F32, F32]] = {}  # cosines and sines, by whether a layer is local

    def get(self, name: str, default: Any = None) -> Any:
        """A metadata value."""
        return self.fields[name].contents() if name in self.fields else default

    def key(self, name: str, default: Any = None) -> Any:
        """A metadata value under the architecture's prefix."""
        return self.get(f"{self.arch}.{name}", default)

    def vector(self, name: str) -> F32:
        """An F32 vector."""
        return np.asarray(self.tensors[name].data, np.float32)

    def linear(self, name: str, x: F32) -> F32:
        """x times the matrix, plus its bias where there is one."""
        t = self.tensors[f"{name}.weight"]
        kind = GGMLQuantizationType(t.tensor_type)
        if kind.name in DECODERS and self.activations != "f32":
            size, decode = DECODERS[kind.name]
            raw = np.asarray(t.data).reshape(t.data.shape[0], -1, size)
            y = product_int(decode(raw), quantise(x, CODE_LIMIT[self.activations]))
        else:
            y = product_f32(dequantize(t.data, kind).astype(np.float32), x)
        return y + self.vector(f"{name}.bias") if f"{name}.bias" in self.tensors else y

    def norm(self, name: str, x: F32) -> F32:
        """RMS norm over the last axis; the sum of squares by 16 partials."""
        n = x.shape[-1]
        part = np.zeros((*x.shape[:-1], 16), np.float32)
        for i in range(0, n, 16):
            group = x[..., i : i + 16]
            part[..., : group.shape[-1]] = fma(group, group, part[..., : group.shape[-1]])
        r = f32(1.0) / np.sqrt(tree(part) / f32(n) + self.eps)
        scaled: F32 = (x * r[..., None]) * self.vector(name)
        return scaled

    def local(self, layer: int) -> bool:
        """Whether the layer sees only a window."""
        return self.arch == "gemma3" and self.window > 0 and layer % 6 != 5

    def rotation(self, layer: int, n: int) -> tuple[F32, F32]:
        """Cosines and sines [n, pairs], rounded once from double."""
        base = 10000.0 if self.local(layer) else float(self.key("rope.freq_base", 10000.0))
        inverse = [f64.power(base, -(2.0 * i) / self.dim) for i in range(self.dim // 2)]
        if not self.local(layer):
            if "rope_freqs.weight" in self.tensors:
                factors = self.vector("rope_freqs.weight").astype(np.float64)
                inverse = [x / float(f) for x, f in zip(inverse, factors, strict=True)]
            if self.key("rope.scaling.type") == "linear":
                inverse = [x / float(self.key("rope.scaling.factor")) for x in inverse]
        both = np.array([[f64.sincos(float(p) * x) for x in inverse] for p in range(n)]).astype(np.float32)
        return both[..., 1], both[..., 0]

    def rotate(self, x: F32, cos: F32, sin: F32) -> F32:
        """Rope of [n, heads, dim]."""
        pairs = self.dim // 2
        one, two = (
            (slice(0, None, 2), slice(1, None, 2))
            if self.arch == "llama"
            else (slice(pairs), slice(pairs, None))
        )
        out = np.empty_like(x)
        a, b, c, s = x[..., one], x[..., two], cos[:, None, :], sin[:, None, :]
        out[..., one] = fma(a, c, -(b * s))
        out[..., two] = fma(a, s, b * c)
        return out

    def scores(self, q: F32, k: F32) -> F32:
        """Dot products [queries, keys], over the head's elements ascending."""
        out = np.zeros((len(q), len(k)), np.float32)
        if self.kv == "q8":
            a, b = quantise(q, 127), quantise(k, 127)
            for i in range(self.dim // BLOCK):
                exact = a.q[:, i].astype(np.float64) @ b.q[:, i].astype(np.float64).T
                out = fma(a.d[:, i, None] * b.d[None, :, i], exact.astype(np.float32), out)
            return out
        for i in range(self.dim):
            out = fma(q[:, i, None], k[None, :, i], out)
        return out

    def weigh(self, e: F32, v: F32, out: F32) -> F32:
        """out + e * v for one position: e is [n], v is [dim]."""
        if self.kv == "q8":
            codes = quantise(v[None], 127)
            factor = e[:, None] * np.repeat(codes.d[0], BLOCK)[None]
            return fma(factor, codes.q.reshape(1, -1).astype(np.float32), out)
        return fma(e[:, None], v[None], out)

    def attend(self, q: F32, k: F32, v: F32, window: int) -> F32:
        """One query head over one KV head, [n, dim] each, with chunks of 128 positions."""
        n = len(q)
        scores = self.scores(q, k) * (f32(1.0) / np.sqrt(f32(self.dim)))
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        seen = (distance >= 0) & ((distance < window) if window else True)
        parts = [self._chunk(scores, seen, v, c) for c in range(0, n, CHUNK)]
        most = np.max([m for m, _, _ in parts], axis=0)
        total, out = np.zeros(n, np.float32), np.zeros_like(q)
        for m, l_sum, o in parts:
            here = np.isfinite(m)
            w = exp(np.where(here, m - most, f32(0.0)).astype(np.float32))
            total = np.where(here, fma(w, l_sum, total), total)
            out = np.where(here[:, None], fma(w[:, None], o, out), out)
        return out * (f32(1.0) / total)[:, None]

    def _chunk(self, scores: F32, seen: npt.NDArray[np.bool_], v: F32, start: int) -> tuple[F32, F32, F32]:
        """Maximum, sum of exponentials and weighted values of one chunk; -inf where nothing is seen."""
        n, stop = len(scores), min(start + CHUNK, scores.shape[1])
        part, mask = scores[:, start:stop], seen[:, start:stop]
        m = np.where(mask, part, f32(-np.inf)).max(axis=1)
        base = np.where(np.isfinite(m), m, f32(0.0))
        e = np.where(mask, exp(np.minimum(part - base[:, None], f32(0.0))), f32(0.0)).astype(np.float32)
        sums, o = np.zeros((n, 16), np.float32), np.zeros((n, v.shape[1]), np.float32)
        for p in range(stop - start):
            here = mask[:, p]
            sums[:, p % 16] = np.where(here, sums[:, p % 16] + e[:, p], sums[:, p % 16])
            o = np.where(here[:, None], self.weigh(e[:, p], v[start + p], o), o)
        return m.astype(np.float32), tree(sums), o

    def attention(self, layer: int, x: F32) -> F32:
        """The attention branch, [n, width], before the residual is added."""
        blk, n = f"blk.{layer}.", len(x)
        h = self.norm(blk + "attn_norm.weight", x)
        q = self.linear(blk + "attn_q", h).reshape(n, self.heads, self.dim)
        k = self.linear(blk + "attn_k", h).reshape(n, self.kv_heads, self.dim)
        v = self.linear(blk + "attn_v", h).reshape(n, self.kv_heads, self.dim)
        if blk + "attn_q_norm.weight" in self.tensors:
            q, k = self.norm(blk + "attn_q_norm.weight", q), self.norm(blk + "attn_k_norm.weight", k)
        cos, sin = self.rotations[self.local(layer)]
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        if self.kv == "f16":
            k, v = (a.astype(np.float16).astype(np.float32) for a in (k, v))
        group, window = self.heads // self.kv_heads, self.window if self.local(layer) else 0
        out = [self.attend(q[:, i], k[:, i // group], v[:, i // group], window) for i in range(self.heads)]
        y = self.linear(blk + "attn_output", np.concatenate(out, axis=1))
        after = blk + "post_attention_norm.weight"
        return self.norm(after, y) if after in self.tensors else y

    def feed_forward(self, layer: int, x: F32) -> F32:
        """The feed-forward branch, [n, width], before the residual is added."""
        blk = f"blk.{layer}."
        h = self.norm(blk + "ffn_norm.weight", x)
        gate, up = self.linear(blk + "ffn_gate", h), self.linear(blk + "ffn_up", h)
        act = gelu_tanh(gate) if self.arch == "gemma3" else silu(gate)
        y = self.linear(blk + "ffn_down", act * up)
        after = blk + "post_ffw_norm.weight"
        return self.norm(after, y) if after in self.tensors else y

    def logits(self, ids: list[int]) -> F32:
        """Logits [n, vocab] of one sequence from position 0."""
        t = self.tensors["token_embd.weight"]
        x = dequantize(t.data[np.array(ids)], GGMLQuantizationType(t.tensor_type)).astype(np.float32)
        if self.arch == "gemma3":
            x = x * np.sqrt(f32(self.width))
        layers = range(self.key("block_count"))
        self.rotations = {self.local(layer): self.rotation(layer, len(ids)) for layer in layers}
        for layer in layers:
            x = x + self.attention(layer, x)
            x = x + self.feed_forward(layer, x)
        x = self.norm("output_norm.weight", x)
        return self.linear("output" if "output.weight" in self.tensors else "token_embd", x)
