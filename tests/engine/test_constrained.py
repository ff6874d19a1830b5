"""Constrained generation on tiny models: every cut ends legally, forced runs are ordinary tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from engine import constrain, native
from engine.errors import ConstraintError, UsageError
from engine.generate import Piece, Sampling
from engine.model import Model, RuntimeConfig
from engine.script import Document, Flow, Kit, Script
from engine.spelling import Spelling
from fixtures.vocab import CONTROL
from tests.engine.vocabularies import bpe, open_vocab, spm

Tiny = Callable[[str], Path]
NAMES = ("llama-q8_0", "llama-q4_0", "gemma3-q8_0", "qwen2-f32")  # BPE; SentencePiece with, without a space
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "straße": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["länge", "längst", "breite"]},
        "parts": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1},
        "n": {"type": ["integer", "null"]},
    },
    "required": ["straße", "kind"],
    "additionalProperties": False,
}
HOT = [Sampling()] + [Sampling(temperature=1.3, seed=seed) for seed in range(6)]


@pytest.fixture(scope="module", params=NAMES)
def model(tiny_model: Tiny, request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model.open(tiny_model(request.param), config=RuntimeConfig(context_tokens=160)) as opened:
        yield opened


@pytest.fixture(scope="module")
def one(tiny_model: Tiny) -> Iterator[Model]:
    with Model.open(tiny_model(NAMES[0]), config=RuntimeConfig(context_tokens=160)) as opened:
        yield opened


def generated(model: Model, constraint: Any = SCHEMA, **options: Any) -> list[Piece]:
    if isinstance(constraint, dict):
        constraint = constrain.compile("json_schema", constraint)
    with model.session(threads=1) as session:
        ids = model.tokenize("the ", bos=True)
        return list(session.generate(ids, **{"constraint": constraint, "max_tokens": 120, **options}))


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def check(pieces: list[Piece]) -> None:
    """The text is empty, or a document of SCHEMA whose filled values exist."""
    text, last = text_of(pieces), pieces[-1]
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    if not text:
        assert last.truncated
        return
    jsonschema.validate(json.loads(text), SCHEMA)
    assert last.truncated == (last.finish != "stop")
    assert last.reason == (last.finish if last.truncated else None)
    assert last.truncated or not last.filled


@pytest.mark.parametrize("sampling", HOT[:3], ids=lambda sampling: f"seed {sampling.seed}")
def test_every_budget_ends_in_a_document_that_begins_like_the_longer_ones(
    model: Model, sampling: Sampling
) -> None:
    whole = generated(model, sampling=sampling)
    check(whole)
    tokens = [piece.token for piece in whole]
    delivered = list(accumulate((piece.text for piece in whole), initial=""))
    for budget in (*range(1, min(len(whole), 30)), len(whole)):
        cut = generated(model, sampling=sampling, max_tokens=budget)
        check(cut)
        assert [piece.token for piece in cut] == tokens[:budget]
        assert text_of(cut).startswith(delivered[budget])


def test_the_context_ends_it_like_a_budget(model: Model) -> None:
    prompt = model.tokenize("the ", bos=True)
    constraint = constrain.compile("json_schema", SCHEMA)
    whole = generated(model, sampling=HOT[1])
    with model.session(threads=1) as session:
        for room in (1, 2, 7, 12):
            ids = [prompt[-1]] * (session.context_tokens - room)
            for logprobs in (None, 1):
                session.truncate(0)
                pieces = list(
                    session.generate(ids, constraint=constraint, sampling=HOT[1], logprobs=logprobs)
                )
                check(pieces)
                if pieces[-1].finish == "context":
                    assert len(pieces) == room + 1
    assert whole


def test_a_deadline_ends_it_like_a_budget(one: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    pieces = generated(one, deadline=6)
    check(pieces)
    assert pieces[-1].finish == "deadline"
    assert len(pieces) < 12
    ticks = iter(range(10**6))
    assert generated(one, deadline=-1) == [Piece(None, "", "deadline", truncated=True, reason="deadline")]


@pytest.mark.parametrize("stop", ["a", '":"', "}", "ß", "n", "ä", ","])
def test_a_stop_string_ends_it_legally_and_is_not_delivered(model: Model, stop: str) -> None:
    for sampling in HOT:
        whole = generated(model, sampling=sampling)
        said = model.detokenize_bytes(piece.token for piece in whole if piece.token is not None)
        plain = said.decode("utf-8", "ignore")  # without what a closer added
        pieces = generated(model, sampling=sampling, stop=[stop])
        if stop not in plain:
            assert text_of(pieces) == text_of(whole)
            continue
        delivered = plain[: plain.index(stop)]
        assert pieces[-1].finish == "stop-string"
        assert text_of(pieces).startswith(delivered)
        check(pieces)
        closing = constrain.Matcher(constrain.compile("json_schema", SCHEMA), None)
        closing.commit_bytes(delivered.encode())
        if closing.begun:
            assert text_of(pieces) == delivered + closing.close().data.decode()
            assert pieces[-1].filled == closing.close().filled


def test_what_was_held_for_a_stop_string_is_delivered_before_the_end(one: Model) -> None:
    plain = generated(one, sampling=HOT[1], max_tokens=20)
    for size in (1, 2, 3):
        pieces = generated(one, sampling=HOT[1], max_tokens=20, stop=[text_of(plain)[:size] + "\N{SNOWMAN}"])
        assert text_of(pieces) == text_of(plain)


def test_half_a_character_is_not_delivered_and_the_document_is_closed_before_it(one: Model) -> None:
    constraint = constrain.compile("regex", "x(日本|山)+y")
    for budget in range(1, 12):
        for sampling in HOT:
            pieces = generated(one, constraint, max_tokens=budget, sampling=sampling)
            text = text_of(pieces)
            assert "\ufffd" not in text
            if text:
                assert text[0] == "x"
                assert text[-1] == "y"
                assert pieces[-1].filled in ((), ("",))


def test_forced_runs_give_the_bits_of_stepping(model: Model) -> None:
    """Logits in front of every token, forced ones too, equal those of evaluating the ids one by one."""
    pieces = generated(model, sampling=HOT[2], max_tokens=40, logprobs=3)
    without = generated(model, sampling=HOT[2], max_tokens=40)
    assert [piece.token for piece in without] == [piece.token for piece in pieces]
    with model.session(threads=1) as session:
        pending = model.tokenize("the ", bos=True)
        for piece in pieces:
            assert piece.token is not None
            row = native.log_softmax(session.eval(pending)[0])
            assert piece.logprob == float(row[piece.token])
            assert [value for _, value in piece.top] == [float(row[token]) for token, _ in piece.top]
            pending = [piece.token]


def test_forced_runs_are_fed_as_one_batch(one: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    step = native.Context.step_tokens
    monkeypatch.setattr(
        native.Context,
        "step_tokens",
        lambda self, tokens, *rest: sizes.append(len(tokens)) or step(self, tokens, *rest),
    )
    constraint = constrain.compile(
        "choice", ["the same beginning a", "the same beginning b", "the same beginning"]
    )
    pieces = generated(one, constraint)
    run = one.tokenize("the same beginning")
    assert [piece.token for piece in pieces][: len(run)] == run
    assert sizes[0] == len(one.tokenize("the ", bos=True)) + len(run)
    assert len(sizes) <= 3


def test_forced_tokens_are_the_tokenizers_own(model: Model) -> None:
    spelling = Spelling.of(model.vocab)
    for text in ('{"name":"', "Länge 日本", " the end", "\n\n}", "a", '","'):
        data = text.encode()
        ids = spelling.ids(data, [(0, len(data))])
        assert model.detokenize_bytes(ids) == data
        if not model.vocab.info.add_space_prefix:
            assert ids == model.vocab.tokenize(data)
    for data in ("é".encode()[:1], "日本".encode()[1:], b"a\xc3"):
        assert model.detokenize_bytes(spelling.ids(data)) == data


def test_the_text_of_a_control_token_stays_text_in_a_document(one: Model) -> None:
    texts = sorted(text for text in one.template().control if len(text) > 2)
    constraint = constrain.compile("choice", [f"a{text}b" for text in texts[:1]])
    pieces = generated(one, constraint)
    assert text_of(pieces) == f"a{texts[0]}b"
    assert not set(one.vocab.steering()) & {piece.token for piece in pieces}


def test_end_tokens_come_only_where_the_document_may_end(model: Model) -> None:
    constraint = constrain.compile("regex", "[a-c]{3}[d-f]*")
    ends = {token for token in range(model.info.vocab) if model.vocab.is_end(token)}
    ended = 0
    for sampling in HOT:
        pieces = generated(model, constraint, sampling=sampling, max_tokens=30)
        text = text_of(pieces)
        assert len(text) >= 3
        assert not ends & {piece.token for piece in pieces[:-1]}
        ended += pieces[-1].token in ends
    kit = Kit(model.vocab)
    guide = Script(kit, Document(kit.matcher(constraint), Flow("content", 0, ())))
    for text, wanted in (("a", False), ("bc", True), ("d", True)):
        for token in kit.spelling.ids(text.encode()):
            guide.take(token)
        mask = guide.mask()
        assert mask is not None
        assert bool((mask & kit.ends).any()) == wanted


def test_a_matcher_may_stand_inside_a_document_that_the_prompt_began(one: Model) -> None:
    matcher = constrain.Matcher(constrain.compile("json_schema", SCHEMA), constrain.Tokens.of(one.vocab))
    begun = '{"straße":"x'
    matcher.commit_bytes(begun.encode())
    for budget in (1, 2, 5, 60):
        pieces = generated(one, matcher.fork(), max_tokens=budget, sampling=HOT[3], stop=["b"])
        jsonschema.validate(json.loads(begun + text_of(pieces)), SCHEMA)


def test_nothing_is_invented_before_the_document_begins(one: Model) -> None:
    assert generated(one, max_tokens=0) == [Piece(None, "", "length", truncated=True, reason="length")]
    pieces = generated(one, constrain.compile("choice", ["the"]), stop=["t"])
    assert text_of(pieces) == ""
    assert (pieces[-1].finish, pieces[-1].truncated, pieces[-1].filled) == ("stop-string", True, ())


def test_a_dead_end_is_an_error(one: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary that cannot spell a byte is needed: this one has lost all tokens but the ends."""
    mask = np.zeros_like(Kit(one.vocab).ends)
    monkeypatch.setattr(Document, "mask", lambda self, kit: mask)
    monkeypatch.setattr(Document, "run", lambda self, kit, run: None)
    with pytest.raises(ConstraintError, match="dead end"):
        generated(one)


def test_wrong_arguments(one: Model) -> None:
    for options in ({"constraint": "regex"}, {"deadline": "soon"}, {"stop": [""]}):
        with pytest.raises(UsageError):
            generated(one, **{"constraint": SCHEMA, **options})


def test_runs_without_the_tokenizers_help_take_the_longest_tokens() -> None:
    vocab = open_vocab(bpe(["abc", "ab"], specials=[("<|end|>", CONTROL)]))
    spelling = Spelling(vocab)
    ids = spelling._longest(b"abcab<|end|>", [])
    assert [vocab.token_bytes(token, special=True) for token in ids] == [b"abc", b"ab", b"<|end|>"]
    literal = spelling._longest(b"<|end|>", [(0, 7)])
    assert all(vocab.token_kind(token) == "normal" for token in literal)
    prefixed = open_vocab(spm([("▁ab", 1, -1.0), ("ab", 1, -2.0)], space_prefix=True))
    assert b"".join(prefixed.token_bytes(token) for token in Spelling(prefixed).ids(b"abab")) == b"abab"
