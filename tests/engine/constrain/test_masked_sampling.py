"""Sampling among legal tokens equals sampling from a vocabulary that has no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import native
from engine.errors import UsageError


def mask_of(legal: list[int], vocab: int) -> native.Words:
    mask = np.zeros((vocab + 31) // 32, np.uint32)
    for token in legal:
        mask[token >> 5] |= np.uint32(1 << (token & 31))
    return mask


def logits_of(seed: int, vocab: int) -> native.Floats:
    return np.random.default_rng(seed).normal(0, 3, vocab).astype(np.float32)


@given(st.data())
def test_illegal_tokens_do_not_exist(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(1, 200))
    legal = sorted(data.draw(st.sets(st.integers(0, vocab - 1), min_size=1)))
    history = data.draw(st.lists(st.integers(0, vocab - 1), max_size=20))
    options = native.SamplerOptions(
        temperature=data.draw(st.sampled_from([0.0, 0.7, 1.3])),
        top_k=data.draw(st.sampled_from([0, 1, 5])),
        top_p=data.draw(st.sampled_from([1.0, 0.8])),
        min_p=data.draw(st.sampled_from([0.0, 0.1])),
        repeat_penalty=data.draw(st.sampled_from([1.0, 1.3])),
        frequency_penalty=data.draw(st.sampled_from([0.0, 0.2])),
        seed=data.draw(st.integers(0, 99)),
    )
    draw, logits = data.draw(st.integers(0, 1000)), logits_of(data.draw(st.integers(0, 999)), vocab)
    mask = mask_of(legal, vocab)
    if data.draw(st.booleans()):  # bits beyond the vocabulary mean nothing
        mask[-1] |= np.uint32((0xFFFFFFFF << (vocab - 32 * (len(mask) - 1))) & 0xFFFFFFFF)
    places = {token: place for place, token in enumerate(legal)}
    smaller = native.sample(logits[legal], options, [places[t] for t in history if t in places], draw)
    assert native.sample(logits, options, history, draw, mask) == legal[smaller]


@given(st.integers(0, 10_000), st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_a_full_mask_changes_nothing(seed: int, vocab: int, draw: int) -> None:
    logits, options = logits_of(seed, vocab), native.SamplerOptions(temperature=0.9, top_p=0.9)
    full = mask_of(list(range(vocab)), vocab)
    assert native.sample(logits, options, (), draw, full) == native.sample(logits, options, (), draw)


def test_masks_are_refused_by_size_and_when_empty() -> None:
    logits = logits_of(0, 40)
    with pytest.raises(UsageError, match="mask of 1 words; 40 tokens need 2"):
        native.sample(logits, native.SamplerOptions(), (), 0, np.ones(1, np.uint32))
    with pytest.raises(UsageError, match="allows no token"):
        native.sample(logits, native.SamplerOptions(), (), 0, np.zeros(2, np.uint32))
