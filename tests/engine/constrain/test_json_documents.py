"""Documents under schemas: masks against the plain loop, endings judged by jsonschema at every cut."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import constrain
from engine.constrain import Matcher, Options
from tests.engine.constrain import walks

FREE = Options(order="any", whitespace="free")
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}},
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS: dict[str, Any] = {
    "anything": True,
    "open object": {"type": "object", "properties": {"name": {"type": "string"}, "id": {"type": "integer"}}},
    "closed object": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 3}, "id": {"minimum": 5, "type": "integer"}},
        "required": ["id"],
        "additionalProperties": False,
    },
    "patterns": {
        "patternProperties": {
            "^x": {"type": "string", "pattern": "^[ab]{2,5}$"},
            "e$": {"type": ["null", "string"]},
        },
        "properties": {"id": {"const": "é日"}},
        "additionalProperties": {"type": "boolean"},
        "type": "object",
    },
    "closed patterns": {
        "type": "object",
        "patternProperties": {"^[ax]{1,3}$": {"type": "number"}},
        "properties": {"name": {"type": "string", "minLength": 2}},
        "additionalProperties": False,
    },
    "finite keys": {"type": "object", "propertyNames": {"enum": ["a", "b", "x", "ab"]}, "minProperties": 3},
    "unique strings": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2},
    "unique words": {
        "type": "array",
        "items": {"enum": ["a", "ab", "b", 1, None]},
        "uniqueItems": True,
        "minItems": 4,
    },
    "unique literals": {
        "type": "array",
        "prefixItems": [{"type": ["boolean", "null"]}, {"type": "boolean"}, {"type": "boolean"}],
        "uniqueItems": True,
    },
    "unique objects": {
        "type": "array",
        "uniqueItems": True,
        "items": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
    "lengths": {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 4}},
    "unions": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"a": {"type": "string", "pattern": "^x"}, "b": {"type": "null"}},
            },
            {
                "type": "object",
                "properties": {"a": {"type": "string", "minLength": 3}, "b": {"type": "boolean"}},
            },
            {"type": "array", "items": {"type": "string", "enum": ["name", "id", "na\\me\n", 'quo"te']}},
        ]
    },
    "tree": TREE,
    "numbers": {
        "type": "array",
        "items": {"type": "number", "minimum": -1.5, "multipleOf": 0.25, "maximum": 120},
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "items": {"type": "object", "required": ["name"], "maxProperties": 2},
        "maxItems": 4,
    },
}
INSTANCES: dict[str, list[Any]] = {
    "anything": [{"a": [1, -0.5e3, None], "é😀": '\n"\\'}, "x", 12],
    "open object": [{"name": "日本\u0001", "other": {"name": 1}, "id": 7}],
    "closed object": [{"name": "é😀x", "id": 15}, {"id": 100}],
    "patterns": [{"xe": "ab", "xa": "abab", "id": "é日", "ee": None, "z": True}],
    "closed patterns": [{"axa": 1.5, "name": "日本", "x": 1e9}],
    "finite keys": [{"a": 1, "ab": [2], "x": {"y": "z"}}],
    "unique strings": [["a", "b", "ab", ""]],
    "unique words": [["a", "ab", 1, None, "b"]],
    "unique literals": [[True, False], [None, True, False, 1, "x"]],
    "unique objects": [[{"a": "x"}, {}, {"a": "y"}]],
    "lengths": [["ab", "日本語😀", "é\n"]],
    "unions": [{"a": "xyz", "b": None}, {"a": "abc", "b": True}, ["name", "na\\me\n", 'quo"te']],
    "tree": [{"name": "a", "next": {"next": {"name": "b", "next": {}}}}],
    "numbers": [[1.25, -1.5, 100, 0.75, 0]],
    "tuple": [["a", 1, {"name": None, "x": []}, {"name": {"name": 1}}]],
}


def compiled(name: str, options: Options) -> constrain.Constraint:
    return constrain.compile("json_schema", SCHEMAS[name], options)


def spellings(value: Any, free: bool) -> list[str]:
    """JSON texts of a value: compact ones, with escapes; and spaced ones."""
    texts = [json.dumps(value, ensure_ascii=ascii, separators=(",", ":")) for ascii in (False, True)]
    return (
        [*texts, json.dumps(value, ensure_ascii=False, indent=2) + "\n", json.dumps(value)] if free else texts
    )


@pytest.mark.parametrize("options", [Options(), FREE], ids=["compact", "free"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_masks(name: str, options: Options) -> None:
    tokens = walks.json_vocabulary(len(name))
    matcher = Matcher(compiled(name, options), walks.make(tokens))
    for seed in range(2):
        matcher.reset()
        for text in walks.random_walk(matcher, tokens, random.Random(seed), 8):
            assert walks.bits(matcher, len(tokens)) == walks.plain_bits(matcher, tokens), text
    matcher = Matcher(compiled(name, FREE if options is FREE else Options(order="any")), walks.make(tokens))
    for value in INSTANCES[name]:
        matcher.reset()
        for byte in json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()[:25]:
            assert walks.bits(matcher, len(tokens)) == walks.plain_bits(matcher, tokens)
            matcher.commit_bytes(bytes([byte]))


@pytest.mark.parametrize("options", [Options(order="any", spelling="any"), FREE], ids=["compact", "free"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_cut_ends_legally(name: str, options: Options) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMAS[name])
    matcher = Matcher(compiled(name, options), None)
    for value in INSTANCES[name]:
        assert validator.is_valid(value)
        for text in spellings(value, options.whitespace == "free"):
            matcher.reset()
            read = b""
            for byte in text.encode():
                matcher.commit_bytes(bytes([byte]))
                read += bytes([byte])
                check_ending(matcher, read, validator)
            assert matcher.accepting
            assert matcher.close().data == b""


def check_ending(matcher: Matcher, read: bytes, validator: Any) -> None:
    """What was read and its completion parse and validate; what is forced begins the completion."""
    closing, forced = matcher.close(), matcher.forced()
    value = json.loads((read + closing.data).decode())
    validator.validate(value)
    for pointer in closing.filled:
        resolve(value, pointer)
    fork = matcher.fork()
    fork.commit_bytes(closing.data)
    assert fork.accepting
    assert fork.close().data == b""
    common = min(len(forced), len(closing.data))
    assert forced[:common] == closing.data[:common]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(SCHEMAS)), st.integers(0, 10**6), st.integers(0, 60), st.booleans())
def test_random_documents_end_legally(name: str, seed: int, cut: int, free: bool) -> None:
    """Random bytes that the constraint allows, cut, closed: the text parses and validates."""
    rng = random.Random(seed)
    matcher = Matcher(compiled(name, FREE if free else Options()), TOKENS)
    data = b"".join(TEXTS[token] for token in legal_tokens(matcher, rng, cut))
    closing = matcher.close()
    value = json.loads((data + closing.data).decode())
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(value)
    for pointer in closing.filled:
        resolve(value, pointer)


TEXTS = walks.json_vocabulary(99, 800)
TOKENS = walks.make(TEXTS)


def legal_tokens(matcher: Matcher, rng: random.Random, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        legal = sorted(walks.bits(matcher, len(TEXTS)) - {walks.END})
        if not legal:
            break
        chosen.append(rng.choice(legal))
        assert matcher.commit(chosen[-1])
    return chosen


def resolve(value: Any, pointer: str) -> Any:
    """The value at a JSON pointer; KeyError, IndexError or ValueError where there is none."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


@pytest.mark.parametrize(
    ("given", "data", "filled"),
    [
        ("", '{"city":"","units":"C"}', ("", "/city", "/units")),
        ('{"ci', 'ty":"","units":"C"}', ("/city", "/units")),
        ('{"city":"Par', '","units":"C"}', ("/city", "/units")),
        ('{"city":"Paris"', ',"units":"C"}', ("/units",)),
        ('{"city":"Paris","units":"F', '"}', ("/units",)),
        ('{"city":"Paris","units":"F"', "}", ()),
        ('{"city":"Paris","units":"F","n":[[1,-', "0]]}", ("/n/0/1",)),
        ('{"city":"Paris","units":"F","n":[[1', "]]}", ("/n/0/0",)),  # it might have become 12
        ('{"city":"Paris","units":"F","n":[[1]', "]}", ()),
        ('{"city":"Paris","units":"F","a/b~":true', "}", ()),
        ('{"city":"Paris","units":"F","n":[', "]}", ()),
        ('{"city":"Paris","units":"F","a/b~":tr', "ue}", ("/a~1b~0",)),
    ],
)
def test_filled_names_what_was_written(given: str, data: str, filled: tuple[str, ...]) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "units": {"enum": ["C", "F"]},
            "n": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "a/b~": {"type": "boolean"},
        },
        "required": ["city", "units"],
        "additionalProperties": False,
    }
    matcher = Matcher(constrain.compile("json_schema", schema, Options(spelling="any")), None)
    matcher.commit_bytes(given.encode())
    closing = matcher.close()
    assert (closing.data.decode(), closing.filled) == (data, filled)


def test_json_kinds() -> None:
    anything, objects = (Matcher(constrain.compile("json", source), None) for source in ("", "object"))
    anything.commit_bytes(b"[1")
    assert anything.close().data == b"]"
    with pytest.raises(constrain.ConstraintError, match="0x5b at offset 0"):
        objects.commit_bytes(b"[1")
    assert objects.close().data == b"{}"


def test_refusals_name_pointer_and_keyword() -> None:
    with pytest.raises(constrain.ConstraintError) as refusal:
        constrain.compile("json_schema", {"properties": {"a": {"pattern": "(a)\\1"}}})
    assert (refusal.value.pointer, refusal.value.keyword) == ("/properties/a", "pattern")


def test_notes_name_annotations() -> None:
    made = constrain.compile(
        "json_schema", {"properties": {"a": {"type": "string", "format": "no such one"}}}
    )
    assert [(note.pointer, note.keyword) for note in made.notes] == [("/properties/a", "format")]


def test_long_documents_take_bounded_memory() -> None:
    import resource

    matcher = Matcher(constrain.compile("json_schema", {"type": "array", "items": {"type": "string"}}), None)
    matcher.commit_bytes(b"[")
    part = b'"' + b"x" * 50 + b'",'
    for _ in range(200):
        matcher.commit_bytes(part * 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(4000):
        matcher.commit_bytes(part * 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10  # KiB
    assert matcher.pointer() == ""


def test_keys_and_constants_are_forced() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "größe": {"enum": ['a"b\n\u0001é', "x"]},
            "n": {"const": None},
        },
        "required": ["city", "größe", "n"],
        "additionalProperties": False,
    }
    matcher = Matcher(constrain.compile("json_schema", schema), None)
    read = b""
    for typed, forced in [
        ("", '{"city":"'),
        ("\\", ""),
        ('"Paris', ""),
        ('"', ',"größe":"'),
        ("a", '\\"b\\n\\u0001é","n":null}'),
    ]:
        matcher.commit_bytes(typed.encode())
        assert matcher.forced().decode() == forced
        matcher.commit_bytes(forced.encode())
        read += (typed + forced).encode()
    jsonschema.validate(json.loads(read), schema)


def test_nothing_is_forced_where_white_space_is_free_or_words_differ() -> None:
    schema = {
        "type": "object",
        "properties": {"ab": True, 'a"': True},
        "additionalProperties": False,
        "minProperties": 1,
    }
    matcher = Matcher(constrain.compile("json_schema", schema, FREE), None)
    assert matcher.forced() == b""
    matcher.commit_bytes(b'{"')
    assert matcher.forced() == b"a"
    matcher.commit_bytes(b"ab")
    assert matcher.forced() == b'"'
