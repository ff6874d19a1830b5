"""The llama.cpp reference: what it answers, and how it fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from certify.references import EvalOptions, ReferenceCrashed, ReferenceRefused
from certify.references.llama_cpp import LlamaCpp, revision_of
from certify.references.llama_cpp_worker import differing_fields

pytestmark = [pytest.mark.reference]
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def llama(real_model: Callable[[str], Path]) -> Iterator[LlamaCpp]:
    pytest.importorskip("xllamacpp")
    with LlamaCpp(real_model(SMOL), threads=2) as reference:
        yield reference


def test_revision_is_the_last_part_of_the_package_version() -> None:
    assert revision_of("2026.10.11549") == "b11549"
    assert revision_of("2026.10.dev") == "unknown"


def test_a_struct_that_differs_from_its_known_defaults_is_named() -> None:
    class Fake:
        n_ctx = 511
        cb_eval = None
        kv_unified = False

    wrong = differing_fields(Fake(), {"n_ctx": 512, "cb_eval": None, "kv_unified": False}, None)
    assert wrong == ["n_ctx=511 instead of 512"]


@pytest.mark.models
def test_tokens_round_trip_and_special_text_counts_only_on_request(llama: LlamaCpp) -> None:
    assert llama.tokenize("The capital of France is", special=False) == [504, 3575, 282, 4649, 314]
    assert 2 in llama.tokenize("a<|im_end|>", special=True)
    assert 2 not in llama.tokenize("a<|im_end|>", special=False)
    assert llama.detokenize(llama.tokenize("naïve 🙂\n", special=False)) == "naïve 🙂\n".encode()
    assert llama.tokenize("", special=True) == []


@pytest.mark.models
def test_logits_repeat_exactly_and_agree_with_greedy(llama: LlamaCpp) -> None:
    ids = llama.tokenize("The capital of France is", special=False)
    picks = llama.greedy(ids, 8)
    logits = llama.logits(ids + picks, range(len(ids) - 1, len(ids) + 7))
    assert logits.dtype == np.float32
    assert logits.shape == (8, llama.vocab)
    assert logits.argmax(axis=1).tolist() == picks
    again = llama.logits(ids + picks, range(len(ids) - 1, len(ids) + 7))
    assert np.array_equal(logits, again)


@pytest.mark.models
def test_flash_attention_changes_logits_so_the_option_arrives(llama: LlamaCpp) -> None:
    ids = llama.tokenize("The capital of France is Paris and the", special=False)
    on = llama.logits(ids, options=EvalOptions(flash_attention=True))
    off = llama.logits(ids, options=EvalOptions(flash_attention=False))
    f32 = llama.logits(ids, options=EvalOptions(flash_attention=False, kv="f32"))
    assert 0 < np.abs(on - off).max() < 20
    assert 0 < np.abs(f32 - off).max() < 20


@pytest.mark.models
def test_a_caller_that_stops_reading_rows_leaves_a_clean_line(llama: LlamaCpp) -> None:
    ids = llama.tokenize("one two three four five six", special=False)
    stream = llama.rows(ids, options=EvalOptions(batch=1))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert llama.tokenize("The", special=False) == [504]


@pytest.mark.models
def test_refusals_name_the_reason_and_leave_it_usable(llama: LlamaCpp) -> None:
    with pytest.raises(ReferenceRefused, match="outside 0"):
        llama.logits([1 << 30])
    with pytest.raises(ReferenceRefused, match="not all in the prompt"):
        llama.logits([504], [3])
    with pytest.raises(ReferenceRefused, match="empty"):
        llama.logits([], [0])
    assert llama.tokenize("The", special=False) == [504]


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    (tmp_path / "no.gguf").write_bytes(b"not a model, only bytes")
    with pytest.raises(ReferenceRefused, match=r"cannot load no\.gguf"):
        LlamaCpp(tmp_path / "no.gguf")


@pytest.mark.models
def test_a_crash_is_named_by_its_signal(real_model: Callable[[str], Path]) -> None:
    pytest.importorskip("xllamacpp")
    reference = LlamaCpp(real_model(SMOL))
    os.kill(reference._process.pid, signal.SIGSEGV)
    with pytest.raises(ReferenceCrashed, match="SIGSEGV"):
        reference.tokenize("x", special=False)
    reference.close()
