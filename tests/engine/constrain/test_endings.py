"""Endings that have to look for keys, members or items: shortest, and found without trying everything."""

from __future__ import annotations

import itertools
import json
from typing import Any, Literal

import pytest

from engine import constrain
from engine.constrain import Matcher, Options
from engine.errors import ConstraintError

Order = Literal["declared", "any"]


def ending(schema: dict[str, Any], prefix: bytes, order: Order = "declared") -> bytes:
    """What completes the prefix: the same under both spellings."""
    ends = set()
    for options in [Options(order=order, spelling="any"), Options(order=order, spelling="plain")]:
        matcher = Matcher(constrain.compile("json_schema", json.dumps(schema), options), None)
        if options.plain and b"\\" in prefix:
            continue
        matcher.commit_bytes(prefix)
        ends.add(bytes(matcher.close().data))
    assert len(ends) == 1
    return ends.pop()


LETTERS = [
    ("é", b'{"', "é".encode()),
    ("é", b'{"a', "é".encode()),
    ("é$", b'{"\\', '"é'.encode()),
    ("é", b'{"\\u', b"00E9"),
    ("é", b'{"\\u00', b"E9"),
    ("é", b'{"\xc3', b"\xa9"),
    ("aé", b'{"', "aé".encode()),
    ("aé", b'{"\\u00', "61é".encode()),
    ("日本", '{"日'.encode(), "本".encode()),
    ("日本", b'{"\xe6\x97', b"\xa5\xe6\x9c\xac"),
    ("^.{3}é", b'{"', "   é".encode()),
    ("[Жé]", b'{"', "é".encode()),
    ("\U0001f600", b'{"\\uD83D', b"\\uDE00"),
    ("[a-y]é$|z$", b'{"\\u0', b"07A"),
    ("\\p{Lo}$", b'{"a', "ª".encode()),
]


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize(("pattern", "prefix", "rest"), LETTERS)
def test_keys_are_ended_by_letters_beyond_ascii(
    pattern: str, prefix: bytes, rest: bytes, order: Order
) -> None:
    names = {"type": "object", "propertyNames": {"pattern": pattern}}
    patterns = {"type": "object", "patternProperties": {pattern: True}, "additionalProperties": False}
    assert ending(names, prefix, order) == rest + b'":0}'
    assert ending(patterns, prefix, order) == rest + b'":0}'


def test_a_key_avoids_the_letters_that_are_taken() -> None:
    schema = {"type": "object", "propertyNames": {"pattern": "^[é-ï]$"}}
    assert ending(schema, '{"é":0,"ê":0,"ì":0,"'.encode()) == 'ë":0}'.encode()
    assert ending(schema, '{"é":0,"ê":0,"ì":0,"'.encode() + b"\xc3") == b'\xab":0}'
    declared = {**schema, "properties": {"é": True, "ê": False}}
    assert ending(declared, b'{"\xc3') == b'\xa9":0}'
    assert ending(declared, '{"é":1,"'.encode() + b"\xc3") == b'\xab":0}'


@pytest.mark.parametrize("order", ["declared", "any"])
def test_many_letters_lead_on_from_one_place(order: Order) -> None:
    letters = [chr(0x4E00 + 2 * i) for i in range(1500)]  # no two adjacent: as many edges
    words = [letter + "x" * (i % 7 + 1) for i, letter in enumerate(letters)]
    schema = {"type": "object", "propertyNames": {"enum": words}}
    assert ending(schema, b'{"\\u', order) == b'4E00x":0}'
    best = min((w.encode() for w in words if w >= "\u5000"), key=lambda w: (len(w), w))
    assert ending(schema, b'{"\xe5', order) == best[1:] + b'":0}'


@pytest.mark.parametrize("order", ["declared", "any"])
def test_large_objects_end_with_what_they_need(order: Order) -> None:
    names = [f"p{i}" for i in range(1200)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "required": names[::2],
        "additionalProperties": False,
    }
    begun = b'{"p0' if order == "declared" else b'{"p9'
    first = "p0" if order == "declared" else "p90"  # p9 is not required: to end it costs a member more
    rest = [n for n in (names[::2] if order == "declared" else sorted(names[::2])) if n != first]
    whole = "{" + ",".join(f'"{n}":0' for n in [first, *rest]) + "}"
    assert (begun + ending(schema, begun, order)).decode() == whole


def test_minima_are_filled_with_the_shortest_keys() -> None:
    whole = b'{"' + ending({"type": "object", "minProperties": 200}, b'{"')
    members = json.loads(whole)
    assert len(members) == 200
    sizes = sorted(len(json.dumps(k, ensure_ascii=False).encode()) - 2 for k in members)
    assert sizes == [0] + [1] * 94 + [2] * 105  # 94 printable ASCII characters need no escape
    with pytest.raises(ConstraintError, match="minProperties 513"):
        constrain.compile("json_schema", '{"type": "object", "minProperties": 513}')


def test_items_that_must_differ_do_differ() -> None:
    schema = {"type": "array", "items": {"enum": list(range(100))}, "uniqueItems": True, "minItems": 50}
    items = json.loads(b"[1," + ending(schema, b"[1,"))
    assert len(items) == 50 == len(set(items))
    assert set(items) <= set(range(100))
    few = {**schema, "minItems": 5}
    assert ending(few, b"[1,") == b"0,2,3,4]"


@pytest.mark.parametrize("rare", ["b" + "l" * 24, "b" + "=" * 60])
def test_all_of_a_few_items_end_shortest_wherever_they_are_cut(rare: str) -> None:
    """Every order of the four is a document; what is left is told by those not begun."""
    texts = [json.dumps(v) for v in ["a=", rare, 1, 2.5]]
    schema = {"type": "array", "items": {"enum": ["a=", rare, 1, 2.5]}, "uniqueItems": True, "minItems": 4}
    documents = ["[" + ",".join(order) + "]" for order in itertools.permutations(texts)]
    source = constrain.compile("json_schema", json.dumps(schema), Options(spelling="any"))
    whole = documents[0].encode()
    for cut in range(len(whole) + 1):
        matcher = Matcher(source, None)
        matcher.commit_bytes(whole[:cut])
        data = whole[:cut] + matcher.close().data
        assert sorted(map(str, json.loads(data))) == sorted(map(str, json.loads(whole))), data
        assert len(data) == len(whole)


def test_numbers_that_must_differ_take_their_shorter_spelling() -> None:
    numbers = {"type": "number", "minimum": 1000}
    schema = {"type": "array", "items": numbers, "uniqueItems": True, "minItems": 3}
    assert ending(schema, b"[").lower() == b"1e3,1e4,1e5]"
    assert ending({**schema, "items": {"enum": [1000, 2000, 3000]}}, b"[") == b"1000,2000,3000]"


UNIQUE = [
    ({"enum": [0.5, None, 12]}, 2, "[nul", "l,12]"),
    ({"type": ["null", "string"]}, 2, "[nul", 'l,""]'),
    ({"enum": ["a", True, "bcd", 1]}, 3, '["a",tru', "e,1]"),
    ({"enum": [0, 1, False, "a", 100000]}, 5, "[", '"a",0,1,100000,false]'),
    ({"anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["x" * 12]}]}, 2, "[0,1,2", "]"),
    ({"anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["x" * 12]}]}, 2, "[0,1,", "2]"),
    ({"type": ["string", "boolean"]}, 2, '[""," ","x', '"]'),
    ({"type": ["null", "string", "boolean"]}, 3, '[" ","!","","o', '"]'),
]


@pytest.mark.parametrize(("items", "least", "prefix", "rest"), UNIQUE)
def test_unique_items_half_read_or_beyond_the_minimum(
    items: dict[str, Any], least: int, prefix: str, rest: str
) -> None:
    schema = {"type": "array", "items": items, "uniqueItems": True, "minItems": least}
    assert ending(schema, prefix.encode()) == rest.encode()


def test_a_number_does_not_end_where_that_leaves_the_dearer_alternative() -> None:
    dear = {"required": ["abcdefgh", "ijklmnop"]}
    cheap = {
        "properties": {"": {"type": "number", "minimum": 1000}},
        "patternProperties": {"x": {"type": "boolean"}},
        "additionalProperties": False,
    }
    schema = {"type": "object", "anyOf": [dear, cheap]}
    assert ending(schema, b'{"x":true,"":', "any").lower() in (b"1e3}", b"1000}")
    assert ending(schema, b'{"x":true,"":1', "any").lower() in (b"e3}", b"000}")


def test_many_long_unique_strings_are_spelled_without_escapes() -> None:
    names = [f"name-{i:03d}-" + "x" * (i % 7) for i in range(64)]
    schema = {"type": "array", "items": {"enum": names}, "uniqueItems": True, "minItems": 64}
    items = json.loads(b"[" + ending(schema, b"["))
    assert sorted(items) == names
    assert len(ending(schema, b"[")) == len(json.dumps(names, separators=(",", ":"))) - 1


@pytest.mark.parametrize(
    ("items", "prefix"),
    [
        ({"enum": ['"', ""]}, '["\\"",'),
        ({"enum": ["\n", ""]}, '["\\n",'),
        ({"enum": ["\\", ""]}, '["\\\\",'),
        ({"type": "string", "pattern": '^é?"?$'}, '["\\"","","é\\"","é'),
    ],
)
def test_an_escape_begins_only_where_a_string_that_is_not_used_goes_on_with_it(
    items: dict[str, Any], prefix: str
) -> None:
    """The one character that is left has two spellings; both are used up with it."""
    schema = {"type": "array", "items": items, "uniqueItems": True, "minItems": 2}
    matcher = Matcher(constrain.compile("json_schema", json.dumps(schema), Options(spelling="any")), None)
    matcher.commit_bytes(prefix.encode())
    if prefix.endswith(","):
        matcher.commit_bytes(b'"')
    with pytest.raises(ConstraintError, match="byte 0x5c"):
        matcher.commit_bytes(b"\\")


def test_existence_and_two_patterns_of_keys() -> None:
    schema = {
        "type": "object",
        "allOf": [
            {"not": {"propertyNames": {"not": {"pattern": "a5b"}}}},
            {"propertyNames": {"pattern": "^(\\w\\w\\d)+$"}},
        ],
        "maxProperties": 1,
    }
    assert ending(schema, b'{"', "any") == b'0a5b00":0}'


@pytest.mark.parametrize("spelling", ["plain", "any"])
def test_a_thousand_different_numbers_are_the_shortest(spelling: Literal["plain", "any"]) -> None:
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "uniqueItems": True}
    most = 1001 if spelling == "plain" else 101
    whole = {**schema, "minItems": most}
    source = constrain.compile("json_schema", json.dumps(whole), Options(spelling=spelling))
    matcher = Matcher(source, None)
    data = matcher.close().data
    assert len(set(json.loads(data))) == most
    assert len(data) <= sum(len(str(i)) + 1 for i in range(most)) + 1


def test_numbers_that_most_others_begin_with_are_still_legal() -> None:
    """2000 is legal behind 0 … 1999, though all shorter texts that begin with 1 are taken."""
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "uniqueItems": True}
    matcher = Matcher(constrain.compile("json_schema", json.dumps(schema)), None)
    matcher.commit_bytes(b"[" + b",".join(b"%d" % i for i in range(2000)))
    matcher.commit_bytes(b",1")
    assert matcher.close().data == b"0000]"


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("rest", [False, True, {"type": "boolean"}])
def test_required_keys_are_spelled_the_least_first_whatever_other_keys_may_come(
    order: Order, rest: Any
) -> None:
    names = ["ab", "abc", "b", 'b"', "é", "\x01"]
    optional = ["", "a", "abd", "\x01x", "c"]
    schema = {
        "properties": {name: {"type": ["integer", "string"]} for name in [*names, *optional]},
        "patternProperties": {"^b": {"minLength": 1}},
        "additionalProperties": rest,
        "required": names,
        "type": "object",
    }
    members = [json.dumps(name, ensure_ascii=False) + ":0" for name in names]
    orders = [members] if order == "declared" else itertools.permutations(members)
    texts = sorted(("{" + ",".join(each) + "}").encode() for each in orders)
    for prefix in {text[:place] for text in texts[:: len(texts) // 5 or 1] for place in range(1, len(text))}:
        nearest = next(text for text in texts if text.startswith(prefix))
        assert prefix + ending(schema, prefix, order) == nearest


def test_ten_thousand_keys_of_one_letter_before_the_last() -> None:
    """Candidates for the next byte are those that keys have: letters beyond ASCII and quotes among them."""
    names = ['"', "\\", "\n", "é", "日本", "日", "z", ""]
    schema = {
        "type": "object",
        "properties": {name: {"type": "null"} for name in names},
        "required": names,
        "additionalProperties": False,
    }
    whole = ending(schema, b"{", "any")
    assert json.loads(b"{" + whole) == dict.fromkeys(names)
    assert len(whole) + 1 == len(
        json.dumps(dict.fromkeys(names), ensure_ascii=False, separators=(",", ":")).encode()
    )


@pytest.mark.parametrize("unit", ["a", "é", "日", "~/"])
def test_pointers_have_any_length(unit: str) -> None:
    key = unit * 30_000
    matcher = Matcher(constrain.compile("json_schema", '{"type": "object"}'), None)
    matcher.commit_bytes(('{"' + key + '":[0,{"x":"').encode())
    pointer = "/" + key.replace("~", "~0").replace("/", "~1") + "/1/x"
    assert matcher.pointer() == pointer
    assert matcher.close().filled == (pointer,)


def test_items_of_many_strings_are_compared() -> None:
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "array", "items": {"type": "string"}}}
    matcher = Matcher(constrain.compile("json_schema", json.dumps(schema)), None)
    item = json.dumps(['abcdef\\"' + str(i) for i in range(10_000)], separators=(",", ":")).encode()
    matcher.commit_bytes(b"[" + item + b"," + item[:-1])
    with pytest.raises(ConstraintError, match="offset 0"):
        matcher.commit_bytes(b"]")
    matcher.commit_bytes(b',""]]')
    assert matcher.accepting


NESTED = {"type": "array", "minItems": 4000, "items": {"type": "array", "minItems": 1000}}
DOUBLED = {
    "$ref": "#/$defs/a0",
    "$defs": {
        **{
            f"a{i}": {"type": "array", "minItems": 2, "items": {"$ref": f"#/$defs/a{i + 1}"}}
            for i in range(40)
        },
        "a40": {"type": "integer"},
    },
}


@pytest.mark.parametrize("schema", [NESTED, DOUBLED, {"anyOf": [{"type": "null"}, NESTED]}])
def test_a_schema_whose_ending_would_be_endless_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ConstraintError, match="no document shorter than 4194304 bytes"):
        constrain.compile("json_schema", schema)


@pytest.mark.parametrize("order", ["declared", "any"])
def test_endings_that_are_searched_for_end(order: Order) -> None:
    """Behind a number more is needed than shows within it: digits that lead nowhere must not look nearer."""

    def some(key: str, value: str) -> dict[str, Any]:
        no = {"not": {"type": "string", "pattern": value}}
        return {"not": {"patternProperties": {key: no}}}

    names = {"propertyNames": {"pattern": "^.{5}$"}}
    schema = {"type": "object", "allOf": [some("k", "K"), some("m", "M"), names]}
    assert ending(schema, b'{"01234', order) == b'":0,"   km":"KM"}'
    assert ending(schema, b'{"01234":12', order) == b',"   km":"KM"}'
    assert ending(schema, b'{"0123k":"K","', order) == b'    m":"M"}'
