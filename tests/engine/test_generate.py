"""Text pieces never split a character nor show a part of a stop string; generations end as documented."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import native
from engine.errors import CancelledError, ContextOverflow, UsageError
from engine.generate import Piece, Sampling, StopStrings, TextStream
from engine.model import Model, RuntimeConfig

Tiny = Callable[[str], Path]
chunks = st.lists(st.binary(max_size=5), max_size=12)
letters = st.text("abc", min_size=1, max_size=4)


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


@given(chunks)
def test_pieces_of_arbitrary_bytes_join_to_the_decoded_whole(parts: list[bytes]) -> None:
    stream = TextStream()
    texts = [stream.feed(part)[0] for part in parts] + [stream.finish()[0]]
    assert "".join(texts) == b"".join(parts).decode("utf-8", "replace")


@given(st.text(max_size=30), st.lists(st.integers(0, 4), max_size=60))
def test_whole_text_is_never_shown_as_broken_characters(text: str, sizes: list[int]) -> None:
    stream = TextStream()
    shown = ""
    for part in cut(text.encode("utf-8", "surrogatepass").replace(b"\xed", b"?"), sizes):
        shown += stream.feed(part)[0]
        clean = text.encode("utf-8", "surrogatepass").replace(b"\xed", b"?").decode("utf-8", "replace")
        assert clean.startswith(shown)
    assert shown + stream.finish()[0] == clean


@given(st.text("abc", max_size=30), st.lists(st.integers(0, 3), max_size=40), st.lists(letters, max_size=3))
def test_stop_strings_cut_where_the_first_one_begins(text: str, sizes: list[int], stops: list[str]) -> None:
    watcher = StopStrings(stops)
    shown, fed, stopped = "", "", False
    for part in cut(text.encode(), sizes):
        piece, stopped = watcher.feed(part.decode())
        shown += piece
        fed += part.decode()
        assert fed.startswith(shown)
        assert not any(stop in shown for stop in stops)
        if stopped:
            break
    if not stopped:
        shown += watcher.flush()
    assert stopped == any(stop in text for stop in stops)
    assert shown == (fed[: min(fed.find(s) for s in stops if s in fed)] if stopped else text)


@given(st.text("abc", max_size=20), st.lists(letters, min_size=1, max_size=3))
def test_no_more_is_held_back_than_could_begin_a_stop_string(text: str, stops: list[str]) -> None:
    watcher = StopStrings(stops)
    shown, stopped = watcher.feed(text)
    held = text[len(shown) :]
    if not stopped and held:
        assert any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize("bad", [[""], "text"])
def test_stop_strings_must_be_strings_with_text(bad: list[str]) -> None:
    with pytest.raises(UsageError):
        StopStrings(bad)


# ---- Whole generations on a tiny model ----------------------------------------------------------


@pytest.fixture(scope="module")
def model(tiny_model: Tiny) -> Iterator[Model]:
    with Model.open(tiny_model("llama-q8_0"), config=RuntimeConfig(context_tokens=48)) as opened:
        yield opened


def generated(model: Model, prompt: str = "the ", **options: object) -> list[Piece]:
    with model.session(threads=1) as session:
        ids = model.tokenize(prompt, bos=True)
        return list(session.generate(ids, **{"max_tokens": 12, **options}))  # type: ignore[arg-type]


def test_a_generation_is_greedy_and_equals_a_loop_over_eval(model: Model) -> None:
    pieces = generated(model)
    ids, wanted = model.tokenize("the ", bos=True), []
    with model.session(threads=1) as session:
        pending = ids
        for _ in range(12):
            token = int(np.argmax(session.eval(pending)[0]))
            wanted.append(token)
            pending = [token]
    assert [piece.token for piece in pieces] == wanted
    assert [piece.finish for piece in pieces] == [None] * 11 + ["length"]
    assert "".join(piece.text for piece in pieces) == model.detokenize(wanted)


def test_the_seed_decides_and_nothing_else(model: Model) -> None:
    hot = Sampling(temperature=1.5, seed=7)
    first = [piece.token for piece in generated(model, sampling=hot)]
    assert first == [piece.token for piece in generated(model, sampling=hot)]
    other = [piece.token for piece in generated(model, sampling=Sampling(temperature=1.5, seed=8))]
    assert first != other


def test_penalties_see_prompt_and_output(model: Model) -> None:
    plain = [piece.token for piece in generated(model, max_tokens=30)]
    fresh = [
        piece.token for piece in generated(model, max_tokens=30, sampling=Sampling(presence_penalty=1000.0))
    ]
    prompt = model.tokenize("the ", bos=True)
    assert len(set(plain)) < len(plain)
    assert len({*fresh, *prompt}) == len(fresh) + len(set(prompt))


def test_logprobs_come_from_raw_logits(model: Model) -> None:
    pieces = generated(model, logprobs=3, sampling=Sampling(temperature=2.0, seed=1), max_tokens=3)
    with model.session(threads=1) as session:
        logits = session.eval(model.tokenize("the ", bos=True))[0].astype(np.float64)
    exact = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    best = sorted(range(len(exact)), key=lambda token: (-exact[token], token))[:3]
    assert [token for token, _ in pieces[0].top] == best
    assert pieces[0].logprob == pytest.approx(exact[pieces[0].token], abs=1e-5)
    assert all(piece.logprob is None and not piece.top for piece in generated(model))
    assert all(piece.logprob is not None and not piece.top for piece in generated(model, logprobs=0))


def test_a_stop_string_ends_it_and_is_not_shown(model: Model) -> None:
    whole = "".join(piece.text for piece in generated(model))
    stop = whole[4:7]
    pieces = generated(model, stop=[stop, "never there"])
    assert pieces[-1].finish == "stop-string"
    assert "".join(piece.text for piece in pieces) == whole[: whole.find(stop)]


def test_held_text_is_released_at_the_end(model: Model) -> None:
    whole = "".join(piece.text for piece in generated(model))
    pieces = generated(model, stop=[whole[-3:] + "\N{WHITE STAR}"])
    assert pieces[-1].finish == "length"
    assert "".join(piece.text for piece in pieces) == whole


def test_a_full_context_is_a_finish(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.Vocab, "is_end", lambda self, token: False)
    pieces = generated(model, max_tokens=None)
    assert pieces[-1].finish == "context"
    assert len(pieces) + len(model.tokenize("the ", bos=True)) == 48 + 1
    with model.session(threads=1) as session, pytest.raises(ContextOverflow):
        list(session.generate([1] * 49))


def test_an_end_token_is_a_finish(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    third = generated(model)[2].token
    monkeypatch.setattr(native.Vocab, "is_end", lambda self, token: token == third)
    pieces = generated(model)
    first = next(index for index, piece in enumerate(pieces) if piece.token == third)
    assert pieces[-1].finish == "stop"
    assert first == len(pieces) - 1
    assert pieces[-1].text == ""


def test_no_tokens_evaluate_the_prompt_alone(model: Model) -> None:
    with model.session(threads=1) as session:
        assert list(session.generate([1, 2, 3], max_tokens=0)) == [Piece(None, "", "length")]
        assert session.length() == 3


def test_work_is_done_only_for_a_piece_that_is_asked_for(model: Model) -> None:
    with model.session(threads=1) as session:
        pieces = session.generate([1, 2, 3], max_tokens=9)
        assert session.length() == 0
        next(pieces)
        assert session.length() == 3
        next(pieces)
        assert session.length() == 4
        session.cancel()
        with pytest.raises(CancelledError):
            next(pieces)
        assert session.length() == 4
        assert session.eval([1]).shape == (1, model.info.vocab)


@pytest.mark.parametrize(
    "options", [{"max_tokens": -1}, {"logprobs": -1}, {"stop": "text"}, {"stop": [""]}, {"ids": []}]
)
def test_wrong_arguments_are_refused_before_work(model: Model, options: dict) -> None:
    with model.session(threads=1) as session, pytest.raises(UsageError):
        session.generate(options.pop("ids", [1]), **options)


@pytest.mark.parametrize(
    "options", [{"seed": -1}, {"seed": 2**64}, {"top_k": -1}, {"top_k": 2**31}, {"min_p": float("nan")}]
)
def test_sampling_ranges(options: dict) -> None:
    with pytest.raises(UsageError):
        Sampling(**options)


@pytest.mark.models
def test_smollm2_names_the_capital_of_france(real_model: Callable[[str], Path]) -> None:
    with Model.open(real_model("SmolLM2-135M-Instruct.Q4_1.gguf")) as smol, smol.session() as session:
        rendered = smol.template().render([{"role": "user", "content": "What is the capital of France?"}])
        ids = smol.tokenize(rendered.text, special=True, literal=rendered.literal)
        pieces = list(session.generate(ids, max_tokens=32))
    assert "Paris" in "".join(piece.text for piece in pieces)
    assert pieces[-1].finish == "stop"
