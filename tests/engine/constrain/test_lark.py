"""Lark's notation: what it admits, against Lark itself; what is refused, with line and column."""

from __future__ import annotations

import itertools
import random

import pytest

from engine import constrain
from engine.errors import ConstraintError
from tests.engine.constrain import grammars
from tests.engine.constrain.grammars import accepts, matcher

CASES = {
    "json": (
        r"""
        ?start: value
        ?value: object | array | string | SIGNED_NUMBER -> number | "true" | "false" | "null"
        array: "[" [value ("," value)*] "]"
        object: "{" [pair ("," pair)*] "}"
        pair: string ":" value
        string: ESCAPED_STRING
        %import common.ESCAPED_STRING
        %import common.SIGNED_NUMBER
        %import common.WS
        %ignore WS
        """,
        ["{", "}", "[", "]", ",", ":", '"a"', '"\\""', "1", "-2.5", "true", " ", "\n"],
    ),
    "calc": (
        r"""
        start: sum            // an expression
        ?sum: product | sum "+" product -> add | sum "-" product
        ?product: atom | product ("*"|"/") atom
        ?atom: NUMBER | "-" atom | NAME | "(" sum ")" | NAME "(" [sum ("," sum)*] ")"
        NAME.2: /[a-z_]\w*/
        NUMBER: DIGIT+ ["." DIGIT+]   # no exponent
        DIGIT: "0".."9"
        %ignore " "
        """,
        ["1", "2.5", "x", "f", "(", ")", "+", "-", "*", ",", " ", "."],
    ),
    "flags": (
        r"""
        start: [SELECT] name ("," name)~0..2 _from? /x.y/s?
        !name: "a"i | "B" | /[c-e]+z?/i | /f{,2}g/
        SELECT: "select"i
        _from.-1: "from" ["only"] name
        %ignore /[ \t]+/
        """,
        ["select", "SeLeCt", " ", "a", "A", "B", "b", "C", "dE", "z", ",", "from", "only", "x\ny", "xzy",
         "fg", "g"],
    ),
    "common": (
        r"""
        start: item+
        item: "i" INT | "s" SIGNED_INT | "d" DECIMAL | "f" SIGNED_FLOAT | "h" HEXDIGIT | "w" WORD ";"
            | "c" CNAME ";" | "n" NEWLINE | "l" LCASE_LETTER | "u" UCASE_LETTER
            | "/" C_COMMENT | "q" ESCAPED_STRING
        %import common (INT, SIGNED_INT, DECIMAL, SIGNED_FLOAT, HEXDIGIT, WORD, CNAME, NEWLINE)
        %import common (LCASE_LETTER, UCASE_LETTER, C_COMMENT, ESCAPED_STRING)
        """,
        ["i12", "i", "s-3", "d1.", "d.5", "d.", "f1e5", "f-.5E+1", "f1.2", "f3", "hF", "hg", "wab;", "w1;",
         "c_a1;", "n\r\n\n", "lA", "uA", "//*a*b**/", "//*/", 'q"a\\"b"', 'q"a"b"', 'q"\n"'],
    ),
}  # fmt: skip


def lark(source: str) -> constrain.Constraint:
    return constrain.compile("lark", source)


def texts_of(pieces: list[str], seed: int) -> list[str]:
    """All texts of at most two pieces, and random ones of up to eight."""
    draw = random.Random(seed)
    short = ["".join(parts) for n in range(3) for parts in itertools.product(pieces, repeat=n)]
    return short + ["".join(draw.choices(pieces, k=draw.randint(3, 8))) for _ in range(300)]


@pytest.mark.reference
@pytest.mark.parametrize("name", CASES)
def test_admits_what_lark_parses(name: str) -> None:
    reference = pytest.importorskip("lark")
    source, pieces = CASES[name]
    parser = reference.Lark(source, parser="earley", lexer="dynamic_complete", ambiguity="resolve")
    constraint, yes = lark(source), 0
    for text in texts_of(pieces, seed=1):
        try:
            parser.parse(text)
            expected = True
        except reference.exceptions.UnexpectedInput:
            expected = False
        assert accepts(constraint, text) == expected, text
        yes += expected
    assert yes > 10


@pytest.mark.parametrize("name", CASES)
def test_every_prefix_of_a_legal_text_closes(name: str) -> None:
    source, pieces = CASES[name]
    constraint, legal = lark(source), 0
    for text in texts_of(pieces, seed=2)[:400]:
        if not accepts(constraint, text):
            continue
        legal += 1
        data = text.encode()
        for cut in range(len(data) + 1):
            at = matcher(constraint, data[:cut])
            ending = at.close().data
            assert len(ending) <= len(data) - cut
            at.commit_bytes(ending)
            assert at.accepting
    assert legal > 5


def test_ignored_text_stands_between_terminals_only() -> None:
    constraint = lark('start: A "b" C\nA: "x" "y"\nC: /[0-9]+/\n%ignore " "\n%ignore /#[^\\n]*\\n/')
    assert accepts(constraint, " xy b #c\n 12 ")
    assert not accepts(constraint, "x y b 12")
    assert not accepts(constraint, "xy b 1 2")


def test_terminals_are_regular_languages_without_a_lexer() -> None:
    constraint = lark("start: A B\nA: /a+/\nB: /a/")
    assert [accepts(constraint, "a" * n) for n in range(4)] == [False, False, True, True]


def test_regular_expressions_are_pythons() -> None:
    constraint = lark(r"start: /a.c|[]x]+|(?P<n>d)\/|\U0001D11E|[^\W\d]{,2}\"/")
    for text in ["abc", "a\rc", "]x", "d/", "𝄞", '"', 'a"', 'ab"']:
        assert accepts(constraint, text), text
    for text in ["a\nc", "", "d", 'abc"', '1"']:
        assert not accepts(constraint, text), text


@pytest.mark.parametrize(
    ("source", "where", "why"),
    [
        ("start: x", (1, 8), "x is not defined"),
        ('s: "a"', (1, 7), "no rule start"),
        ('start: "a"\nstart: "b"', (2, 1), "defined twice"),
        ('start: "\\q"', (1, 9), "malformed escape"),
        ('start: "a\n', (1, 8), "not closed"),
        ('start: "ab".."c"', (1, 8), "one character"),
        ('start: "c".."a"', (1, 8), "one character"),
        ('start: ("a"', (1, 8), "not closed with )"),
        ('start: ["a")', (1, 12), "not closed with ]"),
        ('start: "a"~x', (1, 11), "~n or ~n..m"),
        ('start: "a"~3..2', (1, 11), "is empty"),
        ('start: A\nA: b\nb: "x"', (2, 4), "a rule inside a terminal"),
        ("start: Ab", (1, 8), "all small letters"),
        ('start: f{"a"}', (1, 8), "templates"),
        ("start: /a(?<=b)/", (1, 8), "lookbehind"),
        ("start: /a/x", (1, 11), "flags"),
        ("start: /(?i)a/", (1, 9), "(?P<name>"),
        ("start: /\\Aa/", (1, 9), "matched whole"),
        ("start: /a", (1, 8), "not closed with /"),
        ("start: <|tool|>", (1, 8), "tokens"),
        ('start: "a"\n%declare X', (2, 1), "only %ignore and %import"),
        ("%import other.X", (1, 9), "only %import common"),
        ("%import common.XYZ", (1, 16), "common.XYZ is not known"),
        ('start: "a" start', (1, 1), "admits no text"),
        ('start "a"', (1, 7), "a colon"),
        ('start: "a" : "b"', (1, 12), "neither the end"),
    ],
)
def test_refusals_name_the_place(source: str, where: tuple[int, int], why: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        lark(source)
    assert str(caught.value).startswith(f"Lark grammar, line {where[0]}, column {where[1]}: ")
    assert why in str(caught.value)


def test_masks_of_a_vocabulary_agree_with_its_bytes() -> None:
    words = [b"{", b'{"', b'"a', b'":', b" [", b"1", b", ", b"]}", b"tru", b"e", b"\xc3", b"\xa9", b'"']
    tokens = constrain.Tokens.from_bytes([*words, b""], [len(words)])
    at = constrain.Matcher(lark(CASES["json"][0]), tokens)
    for step in ['{"a": [1, tr', '{"', "", '{"a": [1, true, "é', '{"a": [1]}']:
        at.reset()
        at.commit_bytes(step.encode())
        mask = at.mask()
        for token, word in enumerate(words):
            on = at.fork()
            try:
                on.commit_bytes(word)
                expected = True
            except ConstraintError:
                expected = False
            assert bool(int(mask[0]) >> token & 1) == expected, (step, word)
        assert bool(int(mask[0]) >> len(words) & 1) == at.accepting


def test_both_notations_of_a_random_grammar_are_equal() -> None:
    for seed in range(1000, 1040):
        grammar = grammars.random_grammar(seed)
        if not grammars.productive(grammar):
            continue
        pair = constrain.compile("gbnf", grammars.gbnf(grammar)), lark(grammars.lark(grammar))
        for text in map("".join, itertools.product("aé", repeat=3)):
            assert accepts(pair[0], text) == accepts(pair[1], text)
