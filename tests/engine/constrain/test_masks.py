"""Masks against the plain loop over all tokens, at many positions of many constraints."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import constrain
from engine.constrain import Matcher
from tests.engine.constrain import walks

TEXTS = ["ab", "abc", "b", "ba", " a", "  ", "é", "éa", "日本", "1", "12", "a1", '"', '"a', "\\", "x😀"]
PATTERNS = [
    "a*", "[ab]{2,5}c?", "(ab|ba)+", ".*", '[^"]*"', "é+a|日.", "[0-9]{1,3}", "(a|b|é){3}",
    "[\\u00e0-\\uffff]*",
]  # fmt: skip


def check(matcher: Matcher, tokens: list[bytes], seed: int, steps: int) -> None:
    for text in walks.random_walk(matcher, tokens, random.Random(seed), steps):
        assert walks.bits(matcher, len(tokens)) == walks.plain_bits(matcher, tokens), text


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str) -> None:
    tokens = walks.vocabulary(TEXTS)
    for seed in range(3):
        check(Matcher(constrain.compile("regex", pattern), walks.make(tokens)), tokens, seed, 6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(alphabet="abé日😀", max_size=5), min_size=1, max_size=8), st.integers(0, 99))
def test_choices(words: list[str], seed: int) -> None:
    tokens = walks.vocabulary(TEXTS)
    check(Matcher(constrain.compile("choice", words), walks.make(tokens)), tokens, seed, 6)


@settings(deadline=None)
@given(st.lists(st.text(max_size=6), min_size=1, max_size=8, unique=True), st.data())
def test_choices_are_read_and_closed(words: list[str], data: st.DataObject) -> None:
    matcher = Matcher(constrain.compile("choice", words), None)
    word = data.draw(st.sampled_from(words)).encode()
    cut = data.draw(st.integers(0, len(word)))
    matcher.commit_bytes(word[:cut])
    completions = [w.encode()[cut:] for w in words if w.encode().startswith(word[:cut])]
    assert matcher.close().data == min(completions, key=lambda rest: (len(rest), rest))
    forced = matcher.forced()
    assert all(rest.startswith(forced) for rest in completions)
    longer = {rest[len(forced) : len(forced) + 1] for rest in completions}
    assert len(longer) > 1 or longer == {b""}
    matcher.commit_bytes(word[cut:])
    assert matcher.accepting


def test_threads_share_constraint_and_tokens() -> None:
    tokens = walks.vocabulary(TEXTS)
    shared = walks.make(tokens)

    def run(seed: int) -> list[tuple[str, list[int]]]:
        rng = random.Random(seed)
        found: list[tuple[str, list[int]]] = []
        for pattern in rng.sample(PATTERNS, len(PATTERNS)):
            matcher = Matcher(constrain.compile("regex", pattern), shared)
            for _ in walks.random_walk(matcher, tokens, random.Random(pattern), 4):
                found.append((pattern, sorted(walks.bits(matcher, len(tokens)))))
        return sorted(found)

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(run, range(8))
    assert all(other == first for other in others)


def test_tokens_without_bytes_and_ends() -> None:
    tokens = constrain.Tokens.from_bytes([b"", b"a", b"<end>", b""], ends=[2])
    matcher = Matcher(constrain.compile("regex", "a?"), tokens)
    assert walks.bits(matcher, 4) == {1, 2}
    assert matcher.commit(2)
    assert not matcher.commit(0)
    assert matcher.commit(1)
    assert walks.bits(matcher, 4) == {2}
    assert not matcher.commit(1)
    with pytest.raises(constrain.ConstraintError, match="token 4"):
        matcher.commit(4)


def test_refusals_leave_the_matcher_where_it_was() -> None:
    matcher = Matcher(constrain.compile("regex", "abc"), None)
    with pytest.raises(constrain.ConstraintError, match="0x78 at offset 2"):
        matcher.commit_bytes(b"abx")
    assert matcher.forced() == b"abc"
    with pytest.raises(constrain.ConstraintError, match="without tokens"):
        matcher.mask()


def test_forks_part() -> None:
    matcher = Matcher(constrain.compile("regex", "a[bc]d"), None)
    matcher.commit_bytes(b"a")
    fork = matcher.fork()
    fork.commit_bytes(b"c")
    assert (matcher.close().data, fork.close().data, fork.begun, matcher.pointer()) == (b"bd", b"d", True, "")
    matcher.reset()
    assert (matcher.begun, fork.close().data) == (False, b"d")


def test_compiled_constraints_are_found_again() -> None:
    first = constrain.compile("regex", "x{2}")
    assert constrain.compile("regex", "x{2}") is first
    assert constrain.compile("regex", "x{2}", constrain.Options(order="any")) is not first
    assert first.size_bytes > 0


@pytest.mark.parametrize(
    ("kind", "source", "text"),
    [
        ("choice", "[]", "at least one string"),
        ("choice", '["a", 3]', "item 1"),
        ("choice", "[", "byte"),
        ("regex", "(", "pattern"),
        ("json", "array", '"object"'),
    ],
)
def test_sources_are_refused(kind: constrain.Kind, source: str, text: str) -> None:
    with pytest.raises(constrain.ConstraintError, match=text):
        constrain.compile(kind, source)


LONG = [
    ("gbnf", 'root ::= "<" [^>\\x00-\\x1f]* ">" [a-z]{2,9} "."'),
    ("gbnf", 'root ::= ([a-z ]{1,4} | "a"* [0-9]) (";" root)?'),
    ("gbnf", 'root ::= [a-y]* "z" | [a-z]{3} tail\ntail ::= [a-z0-9]* "!"'),
    ("lark", 'start: (NAME "=" /[0-9]{1,4}/ ";")+\nNAME: /[a-z_][a-z0-9_]*/\n%ignore " "'),
    ("regex", "[a-z]{3,7}( [a-z0-9é]{2,5})*"),
    ("regex", ".{2,6}x{1,3}"),
    ("json_schema", '{"type": "string", "pattern": "^([a-z]{1,3}-){2,3}[0-9]{2,6}$"}'),
    ("json_schema", '{"additionalProperties": {"type": "string", "minLength": 2, "maxLength": 6}}'),
]


@pytest.mark.parametrize(("kind", "source"), LONG)
def test_what_runs_on_is_taken_where_it_fits(kind: constrain.Kind, source: str) -> None:
    """Tokens that run through a long terminal, a count or beyond its end: whole subtrees of one another."""
    rng = random.Random(7)
    letters = ["ab", "xyz", "12", "é", " ", "-", "z", "x", ";", ">", '"', "="]
    words = [
        "".join(rng.choices(letters, [9, 9, 6, 2, 3, 3, 3, 4, 1, 1, 1, 1], k=rng.randint(1, 9)))
        for _ in range(800)
    ]
    tokens = walks.vocabulary(words)
    for seed in range(4):
        check(Matcher(constrain.compile(kind, source), walks.make(tokens)), tokens, seed, 6)


def test_one_mask_of_a_hopeless_grammar_is_refused_by_name() -> None:
    tokens = walks.vocabulary(["".join(pair) for pair in itertools.product("abcdefghijklmno", repeat=3)])
    source = constrain.compile("gbnf", "root ::= s\ns ::= s s s | s s | [a-z]")
    matcher = Matcher(source, walks.make(tokens))
    with pytest.raises(constrain.ConstraintError, match="so ambiguous"):
        matcher.commit_bytes(b"ab" * 200)
    assert not matcher.begun
    assert walks.bits(matcher, len(tokens))


def test_bytes_inside_a_character_are_forced() -> None:
    schema = '{"enum": ["\\u0001x", "\\u00e9", "a\\nb"]}'
    for begun, rest in [
        (b'"\\', b'u0001x"'), (b'"\\u', b'0001x"'), (b'"\\u000', b'1x"'), (b'"\xc3', b'\xa9"'),
        (b'"a\\', b'nb"'),
    ]:  # fmt: skip
        matcher = Matcher(constrain.compile("json_schema", schema), None)
        matcher.commit_bytes(begun)
        assert matcher.forced() == rest
