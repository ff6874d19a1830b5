"""GBNF: its notation, what it refuses with line and column, and grammars as people write them."""

from __future__ import annotations

import pytest

from engine import constrain
from engine.errors import ConstraintError, EngineError
from tests.engine.constrain.grammars import accepts, allowed, matcher

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"""


def gbnf(source: str) -> constrain.Constraint:
    return constrain.compile("gbnf", source)


@pytest.mark.parametrize(
    ("source", "yes", "no"),
    [
        ('root ::= "a\\n\\t\\r\\"\\\\\\[\\]"', ['a\n\t\r"\\[]'], ["a", ""]),
        ('root ::= "\\x41\\u00e9\\U0001d11e"', ["Aé𝄞"], ["A"]),
        ("root ::= [a-c\\x30-9_-]+", ["a_-9", "0"], ["", "d", "é"]),
        ("root ::= [^a-c\\n]", ["d", "é", "𝄞", "\0"], ["a", "\n", "dd"]),
        ("root ::= .", ["\n", "é", "\U0010ffff", "\ud7ff"], ["", "ab"]),
        ('root ::= "ab"{2}', ["abab"], ["ab", "ababab"]),
        ('root ::= "ab"{1,}', ["ab", "ababab"], [""]),
        ('root ::= "ab"{0,2} "c"?', ["", "ab", "ababc", "c"], ["abababc"]),
        ('root ::= ("a" | "b" "c")* | ', ["", "abca"], ["ac"]),
        ('root ::= a-1 | B\na-1 ::= "x" # one\n\n# two\nB ::= "y"', ["x", "y"], ["xy"]),
        ('root ::= "a"\n  | "b"\r\n\r\nx ::= "c"', ["a", "b"], ["c"]),
        ('root ::= (\n "a"\n "b" # in a group\n)\n', ["ab"], ["a"]),
        ("root ::= [日-本]+", ["日本"], ["a"]),
        ('root ::= ""', [""], ["a"]),
    ],
)
def test_notation(source: str, yes: list[str], no: list[str]) -> None:
    constraint = gbnf(source)
    assert [text for text in yes if not accepts(constraint, text)] == []
    assert [text for text in no if accepts(constraint, text)] == []


@pytest.mark.parametrize(
    ("source", "where", "why"),
    [
        ('root ::= "a" x\n', (1, 14), "x is not defined"),
        ('r ::= "a"', (1, 10), "no rule root"),
        ("", (1, 1), "no rule root"),
        ('root ::= "é\\q"', (1, 12), "unknown escape"),
        ('root ::= "\\x4"', (1, 11), "hexadecimal"),
        ('root ::= "\\ud800"', (1, 11), "surrogate"),
        ('root ::= "abc', (1, 10), "not closed"),
        ("root ::= [abc", (1, 10), "not closed"),
        ("root ::= [z-a]", (1, 11), "ends before"),
        ("root ::= []", (1, 10), "empty class"),
        ('root ::= ("a"', (1, 10), "not closed with )"),
        ('root ::= "a")', (1, 13), "neither the end"),
        ("root ::= *", (1, 10), "nothing stands before"),
        ('root ::= "a"{,3}', (1, 13), "a number is missing"),
        ('root ::= "a"{3,2}', (1, 13), "is empty"),
        ('root ::= "a"{100000}', (1, 13), "counts to 65536"),
        ('root = "a"', (1, 6), "::="),
        ('root ::= "a"\nroot ::= "b"', (2, 1), "defined twice"),
        ("root ::= <tool>", (1, 10), "tokens"),
        ('root ::= "a" root', (1, 1), "admits no text"),
        ('x ::= "a"\nroot ::= y\ny ::= "b" y | "c" root', (2, 1), "admits no text"),
        ("root ::= " + "(" * 201 + '"a"' + ")" * 201, (1, 210), "nested deeper"),
    ],
)
def test_refusals_name_the_place(source: str, where: tuple[int, int], why: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        gbnf(source)
    assert str(caught.value).startswith(f"GBNF grammar, line {where[0]}, column {where[1]}: ")
    assert why in str(caught.value)


def test_source_that_is_not_utf8_is_refused_at_its_place() -> None:
    with pytest.raises(ConstraintError, match=r"line 2, column 11: the grammar is not UTF-8"):
        constrain.Constraint("gbnf", b'x ::= "a"\nroot ::= "\xff"')


def test_a_json_grammar_as_llama_cpp_ships_it() -> None:
    constraint = gbnf(JSON)
    for text in ['{"a":[1,-2.5e+1,{"é":"\\u00e9\\""}], "b":null}', "{}", '{ "x": true }\n']:
        assert accepts(constraint, text)
    for text in ["[]", '{"a":01}', '{"a":1,}', '{"a":"\t"}']:
        assert not accepts(constraint, text)
    assert matcher(constraint, b'{"a":[1,{"b').close().data == b'":0}]}'


def test_a_cut_inside_a_character_closes_legally() -> None:
    at = matcher(gbnf('root ::= "<" [^>]* ">"'), "<日".encode()[:-1])
    assert allowed(at) == bytes(range(0x80, 0xC0))
    assert at.close().data == b"\x80>"
    surrogate = matcher(gbnf("root ::= .+"), b"\xed")
    assert allowed(surrogate) == bytes(range(0x80, 0xA0))  # what follows would be a surrogate


@pytest.mark.parametrize(
    "source",
    [
        'root ::= root "+" root | [0-9]',  # ambiguous
        'root ::= a "+" [0-9] | [0-9]\na ::= b root\nb ::= "-"?',  # hidden left recursion
        'root ::= [0-9] ("+" root)?',  # right recursion
        'root ::= root root | [0-9] "+" | [0-9] | ""',
    ],
)
def test_recursion_of_every_kind_takes_bounded_time_and_memory(source: str) -> None:
    at = matcher(gbnf(source), b"1+" * 20_000 + b"1")
    assert at.accepting
    assert at.close().data == b""


def test_endings_do_not_depend_on_how_ambiguous_a_grammar_is() -> None:
    rules = 3000  # each may stand at any place: sooner or later a byte takes more work than is granted
    source = "root ::= " + " | ".join(f"r{i}" for i in range(rules)) + "\n"
    source += "".join(f'r{i} ::= "a" root r{i * 7 % rules}? | "b"\n' for i in range(rules))
    at = matcher(gbnf(source))
    for _ in range(12):
        at.commit_bytes(b"a")
        assert at.close().data == b"b"
    with pytest.raises(EngineError, match="so ambiguous"):
        at.commit_bytes(b"bbb")
    assert at.close().data == b"b"


def test_deep_nesting_closes_as_deep() -> None:
    at = matcher(gbnf('root ::= "(" root ")" | "x"'), b"(" * 20_000)
    assert at.close().data == b"x" + b")" * 20_000


@pytest.mark.parametrize(
    "source",
    [
        'root ::= ("a" | "b")* "a" ("a" | "b"){24}',  # subsets would double with each count
        'root ::= (("a"{0,1000} "b"?){0,1000}){0,1000}',
        "root ::= [^x]{0,60000}",
        "root ::= " + "(" * 100 + '"a"' + "){1,3}" * 100,
        "root ::= " + " | ".join(f'"word {i}"' for i in range(10_000)),
        "root ::= r0\n" + "".join(f'r{i} ::= r{i + 1} | "a" r{i}\n' for i in range(2_000)) + 'r2000 ::= "a"',
    ],
)
def test_pathological_grammars_are_bounded(source: str) -> None:
    constraint = constrain.Constraint("gbnf", source.encode())
    assert constraint.size_bytes < 256 << 20
    assert not matcher(constraint).accepting or accepts(constraint, "")


def test_a_grammar_without_a_text_of_reasonable_length_is_refused() -> None:
    doubling = "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(60))
    with pytest.raises(ConstraintError, match="no text shorter than 16777216 bytes"):
        gbnf("root ::= r0\n" + doubling + 'r60 ::= "a"')
