"""Patterns against Python's re, on a syntax tree that is written out for both."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.constrain import languages as lib

Make = Callable[..., lib.Languages]
Pair = tuple[str, str]  # as ECMA-262 and as Python spell it

LEAVES: list[Pair] = [
    (text, text) for text in ("a", "b", "[ab]", "[^a]", "[a-c]", "é", "-", "[b\\-]", " ", "")
]
LEAVES += [
    ("[^]", "[\\s\\S]"), (".", "[^\\n\\r\\u2028\\u2029]"), ("\\w", "[a-zA-Z0-9_]"), ("\\W", "[^a-zA-Z0-9_]"),
    ("[\\w-]", "[a-zA-Z0-9_-]"), ("\\u{62}", "b"), ("\\x61", "a"), ("[]", "(?!)"), ("\\cJ", "\\n"),
    ("\\/", "/"),
]  # fmt: skip
ASSERTIONS: list[Pair] = [
    ("^", "^"), ("$", "\\Z"), ("\\b", "\\b"), ("\\B", "(?:(?<=\\w)(?=\\w)|(?<!\\w)(?!\\w))"),
]  # fmt: skip
ALPHABET = "abc é-\n"
SHORT = ["".join(word) for n in range(4) for word in itertools.product("ab- ", repeat=n)]


def joined(parts: list[Pair], before: str, between: str, after: str) -> Pair:
    ecma, python = (before + between.join(texts) + after for texts in zip(*parts, strict=True))
    return ecma, python


def bigger(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    lists = st.lists(inner, min_size=1, max_size=3)
    quantifier = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??", "{0,1}?"])
    return (
        lists.map(lambda parts: joined(parts, "", "", ""))
        | lists.map(lambda parts: joined(parts, "(", "|", ")"))
        | st.tuples(inner, quantifier).map(lambda x: (f"(?:{x[0][0]}){x[1]}", f"(?:{x[0][1]}){x[1]}"))
        | st.tuples(inner, st.sampled_from("=!")).map(
            lambda x: (f"(?{x[1]}{x[0][0]})", f"(?{x[1]}{x[0][1]})")
        )
    )


TREES = st.recursive(st.sampled_from(LEAVES * 3 + ASSERTIONS), bigger, max_leaves=10)


@settings(max_examples=300, deadline=None)
@given(TREES, st.booleans(), st.integers(0, 1 << 30))
def test_patterns_match_what_python_matches(languages: Make, tree: Pair, search: bool, seed: int) -> None:
    ecma, python = tree
    rng = random.Random(seed)
    lang = languages().regex(ecma, search=search)
    compiled = re.compile(python, re.ASCII)
    match = compiled.search if search else compiled.fullmatch
    for word in SHORT + ["".join(rng.choices(ALPHABET, k=rng.randint(3, 8))) for _ in range(60)]:
        assert (word in lang) == bool(match(word)), (ecma, word)
    if lang.start != lib.DEAD:
        assert match(lang.sample(rng, 12))
        assert lang.is_minimal()


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (r"^[a-z0-9-]{1,63}$", ["a", "a" * 63], ["", "A", "a" * 64]),
        (r"^\d{3}-\d{4}$", ["555-1234"], ["555-123", "٣٣٣-1234", "555-1234\n"]),
        (r"^dev|rc|stable$", ["develop", "arcs", "unstable"], ["a dev", "stables"]),
        (r"^(?!.*secret).*$", ["", "public"], ["a secret thing"]),
        (r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{4,}$", ["aB3d"], ["ab3d", "aBcd", "aB3"]),
        (r"(?:[^/]*/)*(?=\.(yaml|json))", [".yaml", "a/.json"], ["a/x", "yaml"]),
        (r"^\p{Lu}\p{Script=Greek}+$", ["Éαβ"], ["éαβ", "Éab"]),
        (r"^\u{1F600}\uD83D\uDE00$", ["😀😀"], ["😀"]),
        (r"^\S+\s$", ["a\ufeff", "a "], ["a\x1c", "a"]),
        (r"^[\u0000-\uD800]$", ["\ud7ff", "a"], ["\ue000"]),
        (r"^a{0}b$", ["b"], ["ab"]),
        (r"^[]a]$", [], ["]a]", "a]", ""]),
        (r"^}{]$", ["}{]"], []),
        (r"^(?<year>\d{4})$", ["2024"], ["24"]),
    ],
)
def test_known_patterns(languages: Make, pattern: str, inside: list[str], outside: list[str]) -> None:
    lang = languages().regex(pattern)
    assert [word for word in inside if word not in lang] == []
    assert [word for word in outside if word in lang] == []


@pytest.mark.parametrize(
    ("pattern", "status", "text"),
    [
        (r"(a)\1", lib.EUNSUPPORTED, "byte 3: a backreference"),
        (r"(?<n>a)\k<n>", lib.EUNSUPPORTED, "byte 7: a backreference"),
        (r"x(?<=a)b", lib.EUNSUPPORTED, "byte 1: lookbehind"),
        (r"x(?<!a)b", lib.EUNSUPPORTED, "byte 1: lookbehind"),
        (r"(?i)a", lib.EUNSUPPORTED, "byte 0: a group"),
        (r"\Aa\Z", lib.EUNSUPPORTED, "byte 0: an escape"),
        (r"a{,3}", lib.EUNSUPPORTED, "byte 1: a quantifier without its lower bound"),
        (r"\p{Greek}", lib.EUNSUPPORTED, "byte 0: a Unicode property"),
        ("(" * 300 + ")" * 300, lib.EUNSUPPORTED, "nested deeper"),
        (r"(a", lib.EFORMAT, "byte 0: a group that is not closed"),
        (r"a)", lib.EFORMAT, "byte 1: a closing parenthesis"),
        (r"[a", lib.EFORMAT, "byte 0: a class that is not closed"),
        (r"[z-a]", lib.EFORMAT, "byte 1: a range"),
        (r"*a", lib.EFORMAT, "byte 0: a quantifier"),
        (r"a{2,1}", lib.EFORMAT, "byte 1: a quantifier whose bounds cross"),
        (r"a**", lib.EFORMAT, "byte 2: a quantifier"),
        ("a\\", lib.EFORMAT, "byte 2: the pattern ends"),
        (r"\xg0", lib.EFORMAT, "two hexadecimal digits"),
        (r"\u{110000}", lib.EFORMAT, "10FFFF"),
    ],
)
def test_refusals_name_the_place(languages: Make, pattern: str, status: int, text: str) -> None:
    with pytest.raises(lib.Refused, match=re.escape(text)) as caught:
        languages().regex(pattern)
    assert caught.value.status == status


HOSTILE = [
    "(a*)*b", "(a|aa)+$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*)*x(.*)*y(.*)*z", "(a|b)*a(a|b){30}",
    "((a{1,100}){1,100}){1,100}", "(?=(a|b)*a(a|b){20}$)(a|b)*b", "a{1000000000}", "(?:(?!x).){0,500}y" * 3,
    "[^a]{0,65535}", "\\p{L}{1,3000}$",
]  # fmt: skip


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_patterns_cost_a_bounded_number_of_steps(languages: Make, pattern: str) -> None:
    made = languages(max_steps=5_000_000, max_bytes=1 << 28)
    with contextlib.suppress(lib.Refused):
        assert made.regex(pattern).start != lib.DEAD
    assert made.pool.status in (0, lib.EUNSUPPORTED)
    assert made.pool.steps <= 5_000_000


def test_typical_patterns_take_few_steps(languages: Make) -> None:
    for pattern, most in ((r"^[a-z0-9-]{1,63}$", 3000), (r"^\d{3}-\d{4}$", 500), ("^x-", 200)):
        made = languages()
        made.regex(pattern)
        assert made.pool.steps < most
