"""An independent forward pass in numpy float64: the oracle of the engine's arithmetic.

Written from the models' descriptions (RMSNorm, rotary embeddings, grouped-query attention,
SwiGLU, Gemma 3's sandwich norms and sliding windows), it shares no code with the engine and
reads files with ``gguf``'s own reader and dequantiser. It is slow and keeps nothing between
calls. ``tests/oracle/against_transformers.py`` checks it against Hugging Face transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """What the metadata says about the model."""

    arch: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    freq_base: float
    freq_divisor: float  # linear rope scaling of the layers that see everything
    window: int  # 0 where there is none


class File:
    """A GGUF file: metadata by key, tensors decoded to float64 on request."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self._fields = reader.fields
        self._tensors = {t.name: t for t in reader.tensors}

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a metadata key."""
        return self._fields[key].contents() if key in self._fields else default

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return name in self._tensors

    def tensor(self, name: str, rows: slice | npt.NDArray[np.int64] = slice(None)) -> Array:
        """A tensor as [rows, row length] or [length], float64."""
        t = self._tensors[name]
        data = t.data[rows] if len(t.shape) == 2 else t.data
        return dequantize(data, GGMLQuantizationType(t.tensor_type)).astype(np.float64)

    def row_count(self, name: str) -> int:
        """Rows of a matrix."""
        return int(self._tensors[name].shape[1])

    def shape(self) -> Shape:
        """The hyperparameters."""
        arch = self.get("general.architecture")
        heads = self.get(f"{arch}.attention.head_count")
        width = self.get(f"{arch}.embedding_length")
        scaling = self.get(f"{arch}.rope.scaling.type", "none")
        return Shape(
            arch=arch,
            layers=self.get(f"{arch}.block_count"),
            width=width,
            heads=heads,
            kv_heads=self.get(f"{arch}.attention.head_count_kv", heads),
            head_dim=self.get(f"{arch}.attention.key_length", width // heads),
            eps=float(self.get(f"{arch}.attention.layer_norm_rms_epsilon")),
            freq_base=float(self.get(f"{arch}.rope.freq_base", 10000.0)),
            freq_divisor=float(self.get(f"{arch}.rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0,
            window=self.get(f"{arch}.attention.sliding_window", 0) if arch == "gemma3" else 0,
        )


def logits(path: Path, ids: list[int]) -> Array:
    """Logits [n, vocab] of every position of one sequence that starts at position 0."""
    file = File(path)
    s = file.shape()
    x = file.tensor("token_embd.weight", np.array(ids))
    if s.arch == "gemma3":
        x = x * np.sqrt(s.width)
    for layer in range(s.layers):
        x = x + _attention(file, s, layer, x)
        x = x + _feed_forward(file, s, layer, x)
    x = _rms(x, file.tensor("output_norm.weight"), s.eps)
    head = "output.weight" if file.has("output.weight") else "token_embd.weight"
    step = 16384  # rows at a time: a whole float64 head of a real model is gigabytes
    parts = [x @ file.tensor(head, slice(r, r + step)).T for r in range(0, file.row_count(head), step)]
    return np.concatenate(parts, axis=1)


def _rms(x: Array, weight: Array, eps: float) -> Array:
    scaled: Array = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight
    return scaled


def _linear(file: File, name: str, x: Array) -> Array:
    y = x @ file.tensor(f"{name}.weight").T
    return y + file.tensor(f"{name}.bias") if file.has(f"{name}.bias") else y


def _maybe_norm(file: File, name: str, x: Array, eps: float) -> Array:
    return _rms(x, file.tensor(name), eps) if file.has(name) else x


def _attention(file: File, s: Shape, layer: int, x: Array) -> Array:
    """The attention branch of a layer, [n, width], before the residual is added."""
    blk = f"blk.{layer}."
    n = len(x)
    h = _rms(x, file.tensor(blk + "attn_norm.weight"), s.eps)
    q = _linear(file, blk + "attn_q", h).reshape(n, s.heads, s.head_dim)
    k = _linear(file, blk + "attn_k", h).reshape(n, s.kv_heads, s.head_dim)
    v = _linear(file, blk + "attn_v", h).reshape(n, s.kv_heads, s.head_dim)
    q = _maybe_norm(file, blk + "attn_q_norm.weight", q, s.eps)
    k = _maybe_norm(file, blk + "attn_k_norm.weight", k, s.eps)
    angles = _angles(file, s, layer, n)
    q, k = _rotate(q, angles, s.arch), _rotate(k, angles, s.arch)
    group = s.heads // s.kv_heads
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(s.head_dim)
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    seen = distance >= 0
    if _is_local(s, layer):
        seen &= distance < s.window
    scores = np.where(seen[None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out = np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1)
    y = _linear(file, blk + "attn_output", out)
    return _maybe_norm(file, blk + "post_attention_norm.weight", y, s.eps)


def _is_local(s: Shape, layer: int) -> bool:
    """Gemma 3: five layers with a window, then one that sees everything."""
    return s.window > 0 and layer % 6 != 5


def _angles(file: File, s: Shape, layer: int, n: int) -> Array:
    """Rotation angles [n, head_dim / 2]. Gemma 3's local layers use base 10000, unscaled."""
    local = _is_local(s, layer)
    base = 10000.0 if local else s.freq_base
    freqs = base ** (-np.arange(0, s.head_dim, 2) / s.head_dim)
    if not local:
        freqs = freqs / s.freq_divisor
    if file.has("rope_freqs.weight"):
        freqs = freqs / file.tensor("rope_freqs.weight")
    return np.arange(n)[:, None] * freqs[None, :]


def _rotate(x: Array, angles: Array, arch: str) -> Array:
    """Rotary embedding of [n, heads, head_dim].

    GGUF files of ``llama`` pair neighbouring channels; the other families pair channel i with
    i + head_dim / 2.
    """
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    out = np.empty_like(x)
    half = x.shape[-1] // 2
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if arch == "llama" else (slice(half), slice(half, None))
    )
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def _feed_forward(file: File, s: Shape, layer: int, x: Array) -> Array:
    """The feed-forward branch of a layer, [n, width], before the residual is added."""
    blk = f"blk.{layer}."
    h = _rms(x, file.tensor(blk + "ffn_norm.weight"), s.eps)
    gate, up = _linear(file, blk + "ffn_gate", h), _linear(file, blk + "ffn_up", h)
    if s.arch == "gemma3":  # GELU, tanh form
        act = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
    else:  # SiLU
        act = gate / (1 + np.exp(-gate))
    y = _linear(file, blk + "ffn_down", act * up)
    return _maybe_norm(file, blk + "post_ffw_norm.weight", y, s.eps)


def log_softmax(rows: Array) -> Array:
    """Log-probabilities of logits, over the last axis."""
    shifted = rows - rows.max(axis=-1, keepdims=True)
    out: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out
