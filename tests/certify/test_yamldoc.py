"""YAML as the core schema reads it, and JSON, with lines."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certify import yamldoc
from certify.yamldoc import DocumentError


def read(text: str | bytes) -> Any:
    return yamldoc.read(text if isinstance(text, bytes) else text.encode(), json=False).value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-09-30", "2026-09-30"),
        ("2026-09-30T12:00:00Z", "2026-09-30T12:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("y", "y"), ("NO", "NO"),
        ("true", True), ("False", False), ("TRUE", True),
        ("null", None), ("~", None), ("", None), ("Null", None), ("nULL", "nULL"),
        ("010", 10), ("0o10", 8), ("0x1F", 31), ("0b1", "0b1"), ("1_000", "1_000"), ("-7", -7), ("+7", 7),
        ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("5.", 5.0), ("-1.25e-2", -0.0125), ("1.2.3", "1.2.3"),
        ("'12'", "12"), ('"true"', "true"), ('"a\\nb"', "a\nb"), ("b11549", "b11549"), ("=", "="),
        ("9007199254740991", 9007199254740991),
    ],
)  # fmt: skip
def test_scalars_are_those_of_the_core_schema(text: str, value: object) -> None:
    found = read(f"a: {text}\n")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: 1\nb: &x 2\n", "anchors and aliases", 2),
        ("a: &x 1\nb: *x\n", "anchors and aliases", 1),
        ("a: 1\nb: *x\n", "anchors and aliases", 2),
        ("a: !!str 1\n", "tags are not allowed: tag:yaml.org,2002:str", 1),
        ("a: !!python/object/apply:os.system ['true']\n", "tags are not allowed", 1),
        ("a: ! 1\n", "tags are not allowed", 1),
        ("b: {c: 1}\na:\n  <<: {d: 2}\n", "merge keys", 3),
        ("a: 1\nb: 2\na: 3\n", "duplicate key 'a', first on line 1", 3),
        ("a: {b: 1, 'b': 2}\n", "duplicate key 'b'", 1),
        ("1: a\n", "the key 1 is not a string", 1),
        ("true: a\n", "the key True is not a string", 1),
        ("? [a]\n: b\n", "is not a string", 1),
        ("a: .nan\n", ".nan is not a number of JSON", 1),
        ("a: -.Inf\n", "not a number of JSON", 1),
        ("a: 9007199254740992\n", "not below 2^53", 1),
        ("a: 1e99999\n", "not below 2^53", 1),
        (f"a: {'9' * 5000}\n", "not below 2^53", 1),
        ("a: 1\n---\nb: 2\n", "more than one document", 2),
        ("%YAML 1.1\n---\na: 1\n", "directives", 1),
        ("%TAG ! tag:x,2000:\n---\na: 1\n", "directives", 1),
        ("", "empty", 1),
        ("# nothing\n", "empty", 1),
        ("a: [1\nb: 2\n", "not YAML", 2),
        ("a: 'open\n", "not YAML", 2),
        ("\ta: 1\n", "not YAML", 1),
        ("a: 1\n  b: 2\n", "not YAML", 2),
        ("[" * 65 + "]" * 65, "nested deeper than 64", 1),
        ("a: \x07\n", "not YAML", None),
    ],
)
def test_what_yaml_is_refused(text: str, message: str, line: int | None) -> None:
    with pytest.raises(DocumentError) as caught:
        read(text)
    assert message in str(caught.value)
    assert caught.value.line == line


def test_bytes_that_are_not_utf8_or_too_many() -> None:
    with pytest.raises(DocumentError, match="invalid UTF-8 at byte 6") as caught:
        read(b"a: 1\nb\xff: 2\n")
    assert caught.value.line == 2
    with pytest.raises(DocumentError, match="larger than 1048576"):
        read(b"#" * ((1 << 20) + 1))


@pytest.mark.parametrize("text", ["[" * 500_000, "{a: " * 200_000, "- " * 300_000, "? " * 300_000])
def test_deep_documents_end_soon(text: str) -> None:
    started = time.process_time()
    with pytest.raises(DocumentError):
        read(text)
    assert time.process_time() - started < 20


def test_aliases_cannot_multiply() -> None:
    with pytest.raises(DocumentError, match="anchors"):
        read("a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(VALUES, st.sampled_from([None, 2]))
def test_json_is_read_with_a_line_for_every_path(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    document = yamldoc.read(text.encode(), json=True)
    assert document.value == value
    lines = text.splitlines()

    def visit(item: Any, path: yamldoc.Path) -> None:
        line = lines[document.lines[path] - 1]
        if path and isinstance(path[-1], str):
            assert json.dumps(path[-1]) in line
        children = (
            item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        )
        for key, child in children:
            visit(child, (*path, key))

    visit(value, ())


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_document_or_a_named_error(data: bytes, as_json: bool) -> None:
    try:
        document = yamldoc.read(data, json=as_json)
    except DocumentError:
        return
    json.dumps(document.value, allow_nan=False)


@given(st.text(st.sampled_from("ab: -[]{},&*!|>'\"%@#\n01.~?<"), max_size=60))
def test_any_yaml_like_text_is_a_document_or_a_named_error(text: str) -> None:
    try:
        value = read(text)
    except DocumentError:
        return
    json.dumps(value, allow_nan=False)


def test_lines_of_yaml_point_at_keys_and_items() -> None:
    document = yamldoc.read(b"a:\n  b: 1\n  c:\n  - x\n  - y: 2\n", json=False)
    assert document.lines[("a", "c", 1, "y")] == 5
    assert document.line(("a", "c", 0)) == 4
    assert document.line(("a", "c", 7, "z")) == 3
    assert document.line(("nothing",)) == 1
