"""Evidence of choice against brute force on tiny models: every tokenisation of every alternative."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import constrain, native
from engine.constrain import Options
from engine.errors import ConstraintError, UsageError
from engine.evidence import Choice, Choices
from engine.generate import Piece, Sampling
from engine.model import Model, RuntimeConfig
from engine.session import Session

Tiny = Callable[[str], Path]
NAMES = ("llama-q8_0", "gemma3-q8_0", "qwen2-f32")
OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "c": {"enum": ["ab", "abc", "ä"]},
        "n": {"enum": [1, 10, -2.5, None]},
        "f": {"type": "boolean"},
    },
    "required": ["c"],
    "additionalProperties": False,
}
LIST: dict[str, Any] = {
    "type": "array",
    "items": {"enum": ["a", True, 3]},
    "maxItems": 2,
    "uniqueItems": True,
}
ANY = Options(spelling="any")
CASES: dict[str, Any] = {
    "object": ("json_schema", OBJECT),
    "list": ("json_schema", LIST),
    "string": ("json_schema", {"enum": ["e", "é", "er"]}),
    "number": ("json_schema", {"enum": [1, 12, 2]}),
    "spelled": ("json_schema", {"enum": ["e", "é", "er"]}, ANY),
    "decimal": ("json_schema", {"enum": [1, 12, 2]}, ANY),
    "choice": ("choice", ["the", "the end", "then"]),
    "regex": ("regex", "(yes|no|nö)!?"),
}
ALL = Choices(evaluations=1024, tolerance=1e-12)
HOT = Sampling(temperature=1.0, seed=5)


@pytest.fixture(scope="module", params=NAMES)
def model(tiny_model: Tiny, request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model.open(tiny_model(request.param), config=RuntimeConfig(context_tokens=96)) as opened:
        yield opened


@pytest.fixture(scope="module")
def one(tiny_model: Tiny) -> Iterator[Model]:
    with Model.open(tiny_model(NAMES[0]), config=RuntimeConfig(context_tokens=96)) as opened:
        yield opened


def prompt_of(model: Model) -> list[int]:
    return model.tokenize("the ", bos=True)


def generated(model: Model, case: str, choices: Any = ALL, **options: Any) -> list[Piece]:
    constraint = constrain.compile(*CASES[case])
    with model.session(threads=1, sequences=options.pop("sequences", 3)) as session:
        options = {"sampling": HOT, "max_tokens": 60, **options}
        return list(session.generate(prompt_of(model), constraint=constraint, choices=choices, **options))


def records(pieces: list[Piece]) -> list[Choice]:
    return [choice for piece in pieces for choice in piece.choices]


def tokens_of(pieces: list[Piece]) -> list[int]:
    return [piece.token for piece in pieces if piece.token is not None]


# ---- The oracle: no search, no masks, no code of engine.witness -----------------------------------


def written(kind: str, data: bytes, final: bool, words: list[str]) -> str | None:
    """The alternative that the bytes hold, as text."""
    text = data.decode(errors="ignore").lstrip(",")
    if kind in ("text", "name"):
        whole = [word for word in words if text.startswith(word)]
        longer = [word for word in words if word.startswith(text) and word != text]
        return max(whole, key=len) if whole and (final or not longer) else None
    if text[:1] in ("}", "]"):
        return text[0]
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not final and (end == len(text) or text[end] in ".eE"):
        return None
    return json.dumps(int(value) if number and value == int(value) else value, ensure_ascii=False)


def start_of(kind: str, before: bytes) -> int:
    """Where the element begins that the next token decides."""
    if kind in ("text", "name"):
        return 0
    if kind == "key":
        match = re.search(rb'(?<=\{)("[^"]*)?$|(?<=,)("[^"]*)$', before)
        return len(before) if match is None else match.start()
    match = re.search(rb'(^|(?<=[:\[,]))("[^"]*|[^",:\[\]{}]*)$', before)
    whole = match is None or match[0] in (b"true", b"false", b"null")
    return len(before) if match is None or whole else match.start()


def log_probs(row: native.Floats) -> list[float]:
    return [float(value) for value in native.log_softmax(row)]


class Brute:
    """Sums the probability of every token path to every alternative."""

    def __init__(
        self, model: Model, session: Session, constraint: constrain.Constraint, least: float
    ) -> None:
        self._session = session
        vocab = model.vocab
        self._constraint = constraint
        self._pieces = [(token, data) for token, data in enumerate(vocab.all_token_bytes()) if data]
        self._ends = [token for token in range(vocab.info.size) if vocab.is_end(token)]
        self.masses: dict[str, list[float]] = defaultdict(list)
        self._least = least  # mass below which a path is not followed: numbers may have zeros for ever
        self.left = 0.0  # the mass that was not followed

    def run(self, ids: list[int], before: bytes, kind: str, words: list[str]) -> dict[str, float]:
        self._kind, self._words = kind, words
        begun = constrain.Matcher(self._constraint, None)
        begun.commit_bytes(before)
        self._follow(ids, begun, before[start_of(kind, before) :], 1.0)
        return {text: math.fsum(parts) for text, parts in self.masses.items()}

    def _follow(self, ids: list[int], matcher: constrain.Matcher, data: bytes, mass: float) -> None:
        if mass < self._least:
            self.left += mass
            return
        self._session.truncate(0)
        values = log_probs(self._session.eval(ids)[0])
        if matcher.accepting:
            text = written(self._kind, data, True, self._words)
            for token in self._ends:
                if text is not None:
                    self.masses[text].append(mass * math.exp(values[token]))
        for token, piece in self._pieces:
            ahead = matcher.fork()
            try:
                ahead.commit_bytes(piece)
            except ConstraintError:
                continue
            text = written(self._kind, data + piece, False, self._words)
            if text is None:
                self._follow([*ids, token], ahead, data + piece, mass * math.exp(values[token]))
            else:
                self.masses[text].append(mass * math.exp(values[token]))


def brute(model: Model, case: str, tokens: list[int], record: Choice) -> tuple[dict[str, float], float]:
    kind, source = CASES[case][:2]
    words = source if kind == "choice" else ["yes", "no", "nö", "yes!", "no!", "nö!"]
    before = b"".join(model.vocab.token_bytes(token) for token in tokens[: record.index])
    with model.session(threads=1) as session:
        oracle = Brute(model, session, constrain.compile(*CASES[case]), record.coverage * 1e-14)
        ids = prompt_of(model) + tokens[: record.index]
        return oracle.run(ids, before, record.kind, words), oracle.left


# ---- Tests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_all_tokenisations_of_each_alternative_are_summed(model: Model, case: str) -> None:
    pieces = generated(model, case)
    found = records(pieces)
    assert found
    for record in found[:2]:
        exact, left = brute(model, case, tokens_of(pieces), record)
        legal = math.fsum(exact.values())
        masses = {a.text: 0.0 if a.logprob is None else math.exp(a.logprob) for a in record.alternatives}
        assert set(exact) <= set(masses)
        assert len(masses) == record.n_alternatives
        assert math.fsum(masses.values()) == pytest.approx(record.coverage, rel=1e-9)
        assert record.coverage * (1 - 1e-9) <= legal + left
        assert legal <= (record.coverage + record.unresolved) * (1 + 1e-9)
        assert record.unresolved <= record.coverage * 1e-12
        for alternative in record.alternatives:
            mass, true = masses[alternative.text], exact.get(alternative.text, 0.0)
            assert mass * (1 - 1e-9) <= true + left
            assert true <= (mass + record.unresolved) * (1 + 1e-9)
            assert alternative.prob == pytest.approx(mass / record.coverage, rel=1e-9)


def test_what_is_not_followed_is_counted(one: Model) -> None:
    whole = records(generated(one, "object"))
    for evaluations in (0, 1, 2, 3, 7):
        few = records(generated(one, "object", Choices(evaluations, 0.0)))
        assert len(few) == len(whole)
        for part, full in zip(few, whole, strict=True):
            exact = {a.text: 0.0 if a.logprob is None else math.exp(a.logprob) for a in full.alternatives}
            assert part.evaluations <= evaluations
            assert part.coverage <= full.coverage * (1 + 1e-9)
            assert full.coverage <= (part.coverage + part.unresolved) * (1 + 1e-9)
            assert {a.text for a in part.alternatives} == set(exact)
            for alternative in part.alternatives:
                mass = 0.0 if alternative.logprob is None else math.exp(alternative.logprob)
                assert mass * (1 - 1e-9) <= exact[alternative.text] <= (mass + part.unresolved) * (1 + 1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sampling", [Sampling(), HOT, Sampling(temperature=1.5, seed=1, repeat_penalty=1.2)])
def test_asking_changes_nothing(one: Model, case: str, sampling: Sampling) -> None:
    plain = generated(one, case, None, sampling=sampling, logprobs=3)
    asked = generated(one, case, Choices(8), sampling=sampling, logprobs=3)
    assert records(asked)
    assert [vars(piece) | {"choices": ()} for piece in asked] == [vars(piece) for piece in plain]


def test_how_many_sequences_are_spare_changes_nothing(one: Model) -> None:
    found = [records(generated(one, "object", Choices(9), sequences=count)) for count in (2, 3, 5, 9)]
    assert found[0]
    assert all(other == found[0] for other in found)


def test_records_tell_the_document(model: Model) -> None:
    for seed in range(8):
        pieces = generated(model, "object", Choices(4), sampling=Sampling(temperature=1.4, seed=seed))
        document = json.loads("".join(piece.text for piece in pieces))
        tokens = tokens_of(pieces)
        found = records(pieces)
        assert [record.index for record in found] == sorted({record.index for record in found})
        for record in found:
            assert record.index < len(tokens)
            assert record.n_alternatives == len(record.alternatives) > 1
            assert [a.logprob or -math.inf for a in record.alternatives] == sorted(
                (a.logprob or -math.inf for a in record.alternatives), reverse=True
            )
            assert record.chosen in {a.text for a in record.alternatives}
            if record.kind == "value":
                assert json.loads(record.chosen or "") == document[record.pointer[1:]]
            elif record.chosen != "}":
                assert (record.kind, record.pointer) == ("key", "")
                assert json.loads(record.chosen or "") in document
        named = {record.pointer for record in found if record.kind == "value"}
        assert "/c" in named


def test_an_element_that_is_cut_has_no_choice(one: Model) -> None:
    whole = generated(one, "object", Choices(2))
    first = next(record for record in records(whole) if record.kind == "value")
    cut = generated(one, "object", Choices(2), max_tokens=first.index + 1)
    ended = next(index for index, piece in enumerate(whole) if first in piece.choices)
    last = records(cut)[-1]
    assert (last.pointer, last.alternatives) == (first.pointer, first.alternatives)
    assert last.chosen == (first.chosen if ended == first.index else None)


def test_the_context_bounds_the_search(one: Model) -> None:
    constraint = constrain.compile(*CASES["string"])
    with one.session(threads=1, sequences=2) as session:
        ids = [prompt_of(one)[-1]] * (session.context_tokens - 1)
        pieces = list(session.generate(ids, constraint=constraint, choices=ALL, sampling=HOT))
    for record in records(pieces):
        assert record.evaluations <= 1024
        assert record.coverage + record.unresolved > 0
    assert pieces[-1].finish in ("context", "stop")


def test_more_alternatives_than_are_listed(one: Model) -> None:
    values = [f"v{index}" for index in range(300)]
    constraint = constrain.compile("json_schema", {"enum": values})
    with one.session(threads=1, sequences=2) as session:
        pieces = list(session.generate(prompt_of(one), constraint=constraint, choices=Choices(16)))
    record = records(pieces)[0]
    assert record.n_alternatives == 300
    assert len(record.alternatives) == 64
    many = constrain.compile("json_schema", {"enum": [f"v{index}" for index in range(1025)]})
    with one.session(threads=1, sequences=2) as session:
        pieces = list(session.generate(prompt_of(one), constraint=many, choices=Choices(2)))
    assert records(pieces) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"choices": True, "constraint": None}, "choices need a constraint"),
        ({"choices": 3}, "choices must be a Choices"),
        ({"choices": True, "sequences": 1}, "an empty sequence beside"),
    ],
)
def test_refusals(one: Model, options: dict[str, Any], text: str) -> None:
    constraint = options.pop("constraint", constrain.compile(*CASES["string"]))
    sequences = options.pop("sequences", 2)
    with one.session(threads=1, sequences=sequences) as session, pytest.raises(UsageError, match=text):
        session.generate([1], constraint=constraint, **options)


@pytest.mark.parametrize("bad", [{"evaluations": -1}, {"evaluations": 1025}, {"tolerance": 1.0}])
def test_choices_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        Choices(**bad)


def test_other_spellings_of_a_value_count_for_it(one: Model) -> None:
    """A matcher that stands inside an escaped spelling, and inside a number."""
    for begun, schema, texts in (
        (b'"\\u0', {"enum": ["ab", "ac", "b"]}, {'"ab"', '"ac"', '"b"'}),
        (b'"\\u0061', {"enum": ["ab", "ac", "b"]}, {'"ab"', '"ac"'}),
        (b"1.", {"enum": [1, 1.5, 12]}, {"1", "1.5"}),
    ):
        matcher = constrain.Matcher(constrain.compile("json_schema", schema), constrain.Tokens.of(one.vocab))
        elements = matcher.alternatives()
        assert elements is not None
        from engine.witness import Element

        element = Element(elements, "")
        left = {element.texts[key] for key in element.texts if element.possible(key, begun)}
        assert left == texts


@pytest.mark.models
def test_a_real_model(real_model: Callable[[str], Path]) -> None:
    """Shared prefixes and characters of two bytes; the oracle follows masks, with teacher forcing."""
    values = ["north", "northeast", "northwest", "nördlich", "süd"]
    schema = {"properties": {"to": {"enum": values}}, "required": ["to"], "additionalProperties": False}
    constraint = constrain.compile("json_schema", {"type": "object", **schema})
    with Model.open(real_model("SmolLM2-135M-Instruct.Q4_1.gguf")) as model:
        ids = model.tokenize("The wind blows from the south to the north. As JSON: ", bos=True)
        with model.session(threads=1, sequences=5) as session:
            asked = Choices(evaluations=256, tolerance=1e-6)
            pieces = list(session.generate(ids, constraint=constraint, choices=asked, max_tokens=40))
            (record,) = records(pieces)
            assert {a.value for a in record.alternatives} == set(values)
            assert record.unresolved <= 1e-6 * record.coverage
            ids += tokens_of(pieces)[: record.index]
            before = b"".join(model.vocab.token_bytes(token) for token in tokens_of(pieces)[: record.index])
            matcher = constrain.Matcher(constraint, constrain.Tokens.of(model.vocab))
            matcher.commit_bytes(before)
            session.truncate(0)
            session.eval(ids[:-1], want="none")
            exact = masked(model, session, matcher, ids[-1:], before[start_of("value", before) :], 1.0)
    for alternative in record.alternatives:
        mass = 0.0 if alternative.logprob is None else math.exp(alternative.logprob)
        true = math.fsum(exact.get(alternative.text, [0.0]))
        assert mass * (1 - 1e-9) <= true
        assert true <= (mass + record.unresolved) * (1 + 1e-9)
    assert math.fsum(mass for parts in exact.values() for mass in parts) >= record.coverage * (1 - 1e-9)


def masked(
    model: Model, session: Session, matcher: constrain.Matcher, path: list[int], data: bytes, mass: float
) -> dict[str, list[float]]:
    """What ``Brute`` sums, the tokens that may come taken from masks; the session ends where it began."""
    length = session.length()
    values = log_probs(session.eval(path)[0])
    found: dict[str, list[float]] = defaultdict(list)
    allowed = np.flatnonzero(np.unpackbits(matcher.mask().view(np.uint8), bitorder="little"))
    for token in allowed.tolist():
        ahead, reached = matcher.fork(), mass * math.exp(values[token])
        piece = model.vocab.token_bytes(token)
        assert ahead.commit(token)
        text = written("value", data + piece, False, [])
        if text is not None:
            found[text].append(reached)
        elif reached > 1e-12:
            for key, parts in masked(model, session, ahead, [token], data + piece, reached).items():
                found[key] += parts
    session.truncate(length)
    return found
