"""What a model file may not say: every refusal of arch.c and model.c, by the name it must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import errors
from engine.model import Model
from fixtures import tiny
from fixtures.gguf_writer import BOOL, F32, STRING, U32, Tensor, Value, encode

Metadata = dict[str, Value]
Change = Callable[[Metadata, list[Tensor]], None]


def parts(name: str) -> tuple[Metadata, list[Tensor]]:
    """Metadata and tensors of a tiny model, to be changed."""
    model = tiny.MODELS[name]
    tokenizer, vocab = tiny._tokenizer(model)
    return tiny._metadata(name, model, vocab) | tokenizer, list(tiny._tensors(name, model, vocab))


def load(path: Path, name: str, change: Change) -> None:
    """Write the changed model, open it, evaluate a token."""
    metadata, tensors = parts(name)
    change(metadata, tensors)
    path.write_bytes(encode(metadata, tensors))
    with Model.open(path) as model, model.session(threads=1) as session:
        session.eval([1])


def put(key: str, kind: int, value: object) -> Change:
    def change(metadata: Metadata, tensors: list[Tensor]) -> None:
        metadata[key] = Value(kind, value)  # type: ignore[arg-type]

    return change


def drop(key: str) -> Change:
    return lambda metadata, tensors: metadata.pop(key) and None


def drop_tensor(name: str) -> Change:
    def change(metadata: Metadata, tensors: list[Tensor]) -> None:
        tensors[:] = [t for t in tensors if t.name != name]

    return change


def alter(name: str, **fields: object) -> Change:
    """Replace fields of a tensor."""

    def change(metadata: Metadata, tensors: list[Tensor]) -> None:
        at = next(i for i, t in enumerate(tensors) if t.name == name)
        tensors[at] = replace(tensors[at], **fields)  # type: ignore[arg-type]

    return change


def add_tensor(name: str) -> Change:
    return lambda metadata, tensors: tensors.append(Tensor(name, 0, (4,), bytes(16)))


def both(*changes: Change) -> Change:
    def change(metadata: Metadata, tensors: list[Tensor]) -> None:
        for one in changes:
            one(metadata, tensors)

    return change


F = errors.FormatError
U = errors.UnsupportedError
LLAMA, QWEN2, GEMMA = "llama-q4_0", "qwen2-f32", "gemma3-f32"
REFUSALS: list[tuple[str, Change, type[errors.EngineError], str]] = [
    (LLAMA, put("general.architecture", STRING, "mamba"), U, 'architecture "mamba" is not supported'),
    (LLAMA, drop("general.architecture"), F, "general.architecture"),
    (LLAMA, drop("llama.embedding_length"), F, "llama.embedding_length: missing"),
    (LLAMA, drop("llama.block_count"), F, "llama.block_count"),
    (LLAMA, drop("llama.attention.layer_norm_rms_epsilon"), F, "layer_norm_rms_epsilon"),
    (LLAMA, put("llama.block_count", U32, 0), F, "block_count is 0"),
    (LLAMA, put("llama.block_count", U32, 4_000_000_000), F, "block_count is 4000000000"),
    (LLAMA, put("llama.block_count", STRING, "two"), F, "llama.block_count"),
    (LLAMA, put("llama.block_count", U32, 3), F, "blk.2.attn_norm.weight is missing"),
    (LLAMA, put("llama.block_count", U32, 1), U, "blk.1."),
    (LLAMA, put("llama.embedding_length", U32, 1 << 30), F, "embedding_length is 1073741824"),
    (LLAMA, put("llama.embedding_length", U32, 64), F, "token_embd.weight has shape [96, "),
    (
        LLAMA,
        both(put("llama.attention.head_count", U32, 5), put("llama.attention.head_count_kv", U32, 2)),
        F,
        "head_count 5 is not a multiple",
    ),
    (LLAMA, put("llama.attention.head_count_kv", U32, 2), F, "head_count_kv 2"),
    (LLAMA, put("llama.attention.head_count", U32, 0), F, "head_count is 0"),
    (LLAMA, put("llama.attention.key_length", U32, 5000), F, "key_length is 5000"),
    (LLAMA, put("llama.rope.dimension_count", U32, 999), F, "rope.dimension_count 999"),
    (LLAMA, put("llama.rope.dimension_count", U32, 3), F, "rope.dimension_count 3"),
    (LLAMA, put("llama.rope.freq_base", F32, 0.0), F, "rope.freq_base is 0"),
    (LLAMA, put("llama.rope.freq_base", F32, float("nan")), F, "rope.freq_base"),
    (LLAMA, put("llama.rope.scaling.type", STRING, "yarn"), U, '"yarn" is not supported'),
    (LLAMA, put("llama.rope.scaling.factor", F32, 0.5), U, "llama.rope.scaling.factor"),
    (LLAMA, put("llama.rope.scaling.attn_factor", F32, 0.5), U, "rope.scaling.attn_factor"),
    (LLAMA, put("llama.expert_count", U32, 8), U, "mixtures of experts"),
    (LLAMA, put("llama.attention.sliding_window", U32, 16), U, "sliding windows"),
    (LLAMA, put("llama.attention.causal", BOOL, False), U, "causal"),
    (LLAMA, put("llama.vocab_size", U32, 7), F, "llama.vocab_size is 7"),
    (
        LLAMA,
        lambda m, t: m.update({"tokenizer.ggml.tokens": Value(STRING, ["a", "b"], is_array=True)}),
        F,
        "tokens",
    ),
    (LLAMA, drop_tensor("token_embd.weight"), F, "token_embd.weight is missing"),
    (LLAMA, drop_tensor("output_norm.weight"), F, "output_norm.weight is missing"),
    (LLAMA, drop_tensor("blk.1.ffn_down.weight"), F, "blk.1.ffn_down.weight is missing"),
    (QWEN2, drop_tensor("blk.0.attn_q.bias"), F, "blk.0.attn_q.bias is missing"),
    (GEMMA, drop_tensor("blk.0.post_ffw_norm.weight"), F, "blk.0.post_ffw_norm.weight is missing"),
    (LLAMA, add_tensor("blk.0.ffn_norm_exps.weight"), U, "blk.0.ffn_norm_exps.weight is not part of"),
    (QWEN2, add_tensor("rope_freqs.weight"), U, "rope_freqs.weight is not part of"),
    (LLAMA, add_tensor("blk.0.attn_q_norm.weight"), U, "blk.0.attn_q_norm.weight is not part of"),
    (LLAMA, add_tensor("rope_freqs.weight"), F, "rope_freqs.weight has shape [4, "),
    (
        LLAMA,
        lambda m, t: t.append(Tensor("rope_freqs.weight", 0, (16,), bytes(64))),
        F,
        "rope_freqs.weight: factor 0 is 0",
    ),
    (
        LLAMA,
        alter("output_norm.weight", type=8, data=bytes(102)),
        U,
        "type Q8_0; a vector must be",
    ),
    (LLAMA, alter("blk.0.attn_q.weight", dims=(96, 8), type=0, data=bytes(3072)), F, "asks for [96, 96]"),
    (GEMMA, put("gemma3.attention.sliding_window_pattern", U32, 0), F, "sliding_window_pattern is 0"),
    (
        GEMMA,
        lambda m, t: m.update(
            {"gemma3.attention.sliding_window_pattern": Value(BOOL, [True] * 9, is_array=True)}
        ),
        F,
        "one flag per layer",
    ),
]


@pytest.mark.parametrize("row", REFUSALS, ids=lambda r: r[3])
def test_refusals_name_what_and_where(row: tuple, tmp_path: Path) -> None:
    name, change, kind, said = row
    with pytest.raises(kind) as caught:
        load(tmp_path / "m.gguf", name, change)
    assert said in str(caught.value)


ACCEPTED: list[tuple[str, Change]] = [
    (LLAMA, lambda m, t: None),
    (LLAMA, put("llama.rope.scaling.type", STRING, "none")),
    (
        LLAMA,
        both(put("llama.rope.scaling.type", STRING, "linear"), put("llama.rope.scaling.factor", F32, 4.0)),
    ),
    (LLAMA, put("llama.expert_count", U32, 0)),
    (LLAMA, put("llama.attention.causal", BOOL, True)),
    (LLAMA, add_tensor("blk.0.attn_rot_embd.weight")),
    (LLAMA, alter("output_norm.weight", type=30, data=b"\x80\x3f" * 96)),
    (GEMMA, put("gemma3.attention.sliding_window_pattern", U32, 2)),
    (
        GEMMA,
        lambda m, t: m.update(
            {
                "gemma3.attention.sliding_window_pattern": Value(
                    BOOL, [True] * tiny.MODELS[GEMMA].layers, is_array=True
                )
            }
        ),
    ),
    (GEMMA, put("gemma3.final_logit_softcapping", F32, 30.0)),
    (GEMMA, put("gemma3.attn_logit_softcapping", F32, 50.0)),
]


@pytest.mark.parametrize("number", range(len(ACCEPTED)))
def test_neutral_and_implemented_variations_load(number: int, tmp_path: Path) -> None:
    name, change = ACCEPTED[number]
    load(tmp_path / "m.gguf", name, change)
