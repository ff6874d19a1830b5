"""The oracle notices what it should: every term of the models moves its logits far beyond the bounds
that the engine is held to, so an engine that drops the term fails those tests.

Each case neutralises one term in a copy of a tiny model and compares the oracle with itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from tests.engine.test_forward_oracle import BOUNDS, mean_kld, oracle, prompt
from tests.oracle import float64_forward

Change = Callable[[GGUFReader], None]


def fill(tensor: str, value: float) -> Change:
    """Set every element of an F32 tensor."""

    def change(reader: GGUFReader) -> None:
        next(t for t in reader.tensors if t.name == tensor).data[:] = value

    return change


def put(key: str, value: float) -> Change:
    """Set a scalar of the metadata."""

    def change(reader: GGUFReader) -> None:
        field = reader.fields[key]
        field.parts[field.data[0]][0] = value

    return change


def drop_f16(tensor: str, block_bytes: int, at: int) -> Change:
    """Zero one f16 of every block of a quantised tensor: its minimum, say."""

    def change(reader: GGUFReader) -> None:
        data = next(t for t in reader.tensors if t.name == tensor).data
        data.reshape(len(data), -1, block_bytes)[:, :, at : at + 2] = 0

    return change


CASES: dict[str, tuple[str, Change]] = {
    "bias of k": ("qwen2-f32", fill("blk.1.attn_k.bias", 0)),
    "bias of q": ("qwen2-f32", fill("blk.0.attn_q.bias", 0)),
    "bias of v": ("qwen2-f32", fill("blk.1.attn_v.bias", 0)),
    "bias of the output projection": ("llama-untied-bias-f16", fill("blk.0.attn_output.bias", 0)),
    "norm of q": ("qwen3-f16", fill("blk.0.attn_q_norm.weight", 1)),
    "norm of k": ("qwen3-f16", fill("blk.1.attn_k_norm.weight", 1)),
    "rope divisors": ("llama-ropefreqs-bf16", fill("rope_freqs.weight", 1)),
    "rope base": ("llama-f32", put("llama.rope.freq_base", 500000.0)),
    "rope scaling": ("gemma3-scaled-f16", put("gemma3.rope.scaling.factor", 1.0)),
    "window off by one": ("gemma3-f32", put("gemma3.attention.sliding_window", 9)),
    "norm after attention": ("gemma3-f32", fill("blk.7.post_attention_norm.weight", 1)),
    "norm after feed-forward": ("gemma3-f32", fill("blk.11.post_ffw_norm.weight", 1)),
    "epsilon": ("llama-f32", put("llama.attention.layer_norm_rms_epsilon", 0.1)),
    "minimum of Q4_1": ("llama-q4_1", drop_f16("blk.1.ffn_up.weight", 20, 2)),
    "minimum of Q2_K": ("llama-q2_k", drop_f16("blk.1.attn_q.weight", 84, 82)),
    "minimum of Q4_K": ("llama-q4_k", drop_f16("blk.1.ffn_gate.weight", 144, 2)),
    "minimum of Q5_K": ("llama-q5_k", drop_f16("blk.0.attn_v.weight", 176, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_bounds_would_catch_a_dropped_term(
    case: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    name, change = CASES[case]
    path = tiny_model(name)
    changed = shutil.copy(path, tmp_path / "changed.gguf")
    reader = GGUFReader(changed, "r+")
    change(reader)
    reader.data.flush()
    expected = oracle(path)
    kld = mean_kld(expected, float64_forward.logits(Path(changed), prompt(expected.shape[1])))
    assert kld > 50 * BOUNDS["wide", "f16"]


def test_reading_back_the_unchanged_file_changes_nothing(tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model("llama-q4_k_m")
    again = float64_forward.logits(path, prompt(oracle(path).shape[1]))
    assert np.array_equal(oracle(path), again)
