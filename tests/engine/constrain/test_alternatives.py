"""The alternatives of the element that begins at a position, worked out by hand and by stepping."""

from __future__ import annotations

from typing import Any

import pytest

from engine import constrain
from engine.constrain import Matcher, Options
from engine.errors import ConstraintError

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "c": {"enum": ["ab", 'a"b\n', "ä", "\u0001\\"]},
        "n": {"enum": [1, 10, -2.5, None, 1e3, 0]},
        "f": {"type": "boolean"},
    },
    "required": ["c"],
    "additionalProperties": False,
}
LIST = {"type": "array", "items": {"enum": ["a", True, 3, 30]}, "maxItems": 2, "uniqueItems": True}


def legal(matcher: Matcher, text: str) -> bool:
    try:
        matcher.fork().commit_bytes(text.encode())
    except ConstraintError:
        return False
    return True


def alternatives(source: Any, at: str = "", kind: Any = "json_schema", **options: Any) -> Any:
    matcher = Matcher(constrain.compile(kind, source, Options(**options)), None)
    matcher.commit_bytes(at.encode())
    found = matcher.alternatives()
    return None if found is None else (found.kind, set(found.texts))


@pytest.mark.parametrize(
    ("at", "kind", "texts"),
    [
        ("{", "key", {'"c"'}),
        ('{"c":', "value", {'"ab"', '"a\\"b\\n"', '"ä"', '"\\u0001\\\\"'}),
        ('{"c":"ab"', "key", {"}", ',"n"', ',"f"'}),
        ('{"c":"ab",', "key", {'"n"', '"f"'}),
        ('{"c":"ab","n":', "value", {"1", "10", "-2.5", "null", "1000", "0"}),
        ('{"c":"ab","n":1,', "key", {'"f"'}),
        ('{"c":"ab","f":true', "key", {"}"}),
    ],
)
def test_elements_of_an_object(at: str, kind: str, texts: set[str]) -> None:
    assert alternatives(OBJECT, at) == (kind, texts)


@pytest.mark.parametrize("at", ["", '{"', '{"c":"', '{"c":"a', '{"c"', '{"c":"ab","n":1', '{"c":"ab","f":t'])
def test_none_begins_inside_an_element(at: str) -> None:
    assert alternatives(OBJECT, at) is None


def test_order_and_white_space() -> None:
    assert alternatives(OBJECT, '{"n":1, \n', order="any", whitespace="free") == ("key", {'"c"', '"f"'})
    assert alternatives(OBJECT, ' { "c" : "ab" ', whitespace="free") == ("key", {"}", ',"n"', ',"f"'})


@pytest.mark.parametrize(
    ("at", "texts"),
    [
        ("[", {"]", '"a"', "true", "3", "30"}),
        ('["a"', {"]", ",true", ",3", ",30"}),
        ('["a",', {"true", "3", "30"}),
        ("[3,", {'"a"', "true", "30"}),
        ("[30,", {'"a"', "true", "3"}),
        ('[true,"a"', {"]"}),
    ],
)
def test_items_of_a_unique_array(at: str, texts: set[str]) -> None:
    assert alternatives(LIST, at) == ("value", texts)


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"type": "integer", "minimum": -1, "maximum": 3}, {"-1", "0", "1", "2", "3"}),
        (
            {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25},
            {"0", "0.25", "0.5", "0.75", "1"},
        ),
        ({"type": "string", "pattern": "^[ab]{2}$"}, {'"aa"', '"ab"', '"ba"', '"bb"'}),
        ({"anyOf": [{"const": "x"}, {"type": "null"}]}, {'"x"', "null"}),
        ({"oneOf": [{"enum": ["x", "y"]}, {"enum": ["y", "z"]}]}, {'"x"', '"z"'}),
        ({"type": ["boolean", "null"]}, {"true", "false", "null"}),
        ({"enum": [1, 1.0, 2]}, {"1", "2"}),
        ({"type": "string", "maxLength": 0}, {'""'}),
    ],
)
def test_finite_schemas(schema: Any, texts: set[str]) -> None:
    assert alternatives(schema) == ("value", texts)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "string"},
        {"type": "string", "maxLength": 1},
        {"anyOf": [{"const": {"a": 1}}, {"type": "null"}]},
        {"enum": [1, [2]]},
        {"enum": [f"v{index}" for index in range(1025)]},
        {"enum": ["a" * 5000, "b"]},
        {"type": "integer", "minimum": 1, "maximum": 2000},
        True,
    ],
)
def test_what_has_no_end_or_is_too_much_is_none(schema: Any) -> None:
    assert alternatives(schema) is None


def test_the_most_that_is_told() -> None:
    kind, texts = alternatives({"enum": [f"v{index}" for index in range(1024)]})
    assert (kind, len(texts)) == ("value", 1024)
    kind, texts = alternatives({"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.001})
    assert {float(text) for text in texts} == {index / 1000 for index in range(1001)}


def test_open_objects_have_no_list_of_keys() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    assert alternatives(schema, "{") == ("key", {'"a"'})  # declared order: others come later
    assert alternatives(schema, "{", order="any") is None
    assert alternatives(schema, '{"a":null') is None
    closed = {"type": "object", "patternProperties": {"^(x|yy)$": True}, "additionalProperties": False}
    assert alternatives(closed, "{") == ("key", {"}", '"x"', '"yy"'})
    assert alternatives(closed, '{"x":null,') == ("key", {'"yy"'})


def test_whole_texts() -> None:
    assert alternatives(["red", "redder"], kind="choice") == ("text", {"red", "redder"})
    assert alternatives(["red", "redder"], "red", kind="choice") is None
    assert alternatives("(yes|no)!?", kind="regex") == ("text", {"yes", "no", "yes!", "no!"})
    assert alternatives("a*", kind="regex") is None
    assert alternatives('root ::= "a" | "b"', kind="gbnf") is None


PARTS = ["{", "[", '"c":"ab"', '"f":true', '"f"', ":", "false", '"a"', "3", "30", ",", '"n":', '"c":', '"ä"']


def texts_of(constraint: constrain.Constraint, begun: str = "", depth: int = 6) -> list[str]:
    """All beginnings of documents that a few parts make."""
    found = [begun]
    for part in PARTS if depth else []:
        if legal(Matcher(constraint, None), begun + part):
            found += texts_of(constraint, begun + part, depth - 1)
    return found


@pytest.mark.parametrize("schema", [OBJECT, LIST])
def test_each_alternative_can_come_and_no_other(schema: Any) -> None:
    """By stepping, at every position of some documents."""
    constraint = constrain.compile("json_schema", schema)
    scalars = ['"ab"', '"a"', '"ä"', "true", "false", "null", "0", "1", "3", "10", "30", "-2.5", "1000"]
    seen = 0
    for begun in texts_of(constraint):
        matcher = Matcher(constraint, None)
        matcher.commit_bytes(begun.encode())
        found = matcher.alternatives()
        if found is None:
            continue
        seen += 1
        bare = {text.lstrip(",") for text in found.texts}
        comma = "," if any(text.startswith(",") for text in found.texts) else ""
        assert all(legal(matcher, text) for text in found.texts)
        assert ("}" in bare) == legal(matcher, "}") or found.kind != "key"
        assert ("]" in bare) == legal(matcher, "]") or found.kind != "value"
        for text in scalars if found.kind == "value" else ['"c"', '"n"', '"f"', '"a"']:
            ends = [",", "]", "}"] if text[-1].isdigit() else [""]
            assert (text in bare) == any(legal(matcher, comma + text + end) for end in ends)
    assert seen > 5
