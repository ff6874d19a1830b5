"""Strict JSON and RFC 8785."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import canonical

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) < 2**53),
    st.text(st.characters(exclude_categories=["Cs"])),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=5),
    ),
    max_leaves=20,
)


@given(VALUES)
def test_a_value_survives_writing_and_reading(value: object) -> None:
    data = canonical.dumps(value)
    assert canonical.loads(data) == value
    assert canonical.dumps(canonical.loads(data)) == data
    assert json.loads(data) == value


@given(VALUES)
def test_the_order_of_keys_and_the_spacing_do_not_matter(value: object) -> None:
    pretty = json.dumps(value, indent=3, ensure_ascii=True).encode()
    assert canonical.digest(canonical.loads(pretty)) == canonical.digest(value)


def test_the_example_of_rfc_8785() -> None:
    value = {
        "numbers": [333333333.33333329, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert (
        canonical.dumps(value)
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )


def test_keys_are_sorted_by_utf_16_units() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    assert list(json.loads(canonical.dumps(dict.fromkeys(keys, 0)))) == [
        "\r",
        "1",
        "\u0080",
        "\u00f6",
        "\u20ac",
        "\U0001f600",
        "\ufb33",
    ]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"a":1,"a":1}', "duplicate key 'a'"),
        (b'{"a":{"b":1,"\\u0062":2}}', "duplicate key 'b'"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not"),
        (b"[1e999]", "not below 2^53"),
        (b"[9007199254740992]", "integer 9007199254740992 is not below 2^53"),
        (b"[-9007199254740992]", "not below 2^53"),
        (b"[1e16]", "number 1e16 is not below 2^53"),
        (b"[" + b"9" * 5000 + b"]", "not below 2^53"),
        (b'"\\ud800"', "lone surrogate"),
        (b'{"\\udc00":1}', "lone surrogate"),
        (b'"\xff"', "invalid UTF-8 at byte 1"),
        (b"\xef\xbb\xbf{}", "byte-order mark"),
        (b"{} {}", "Extra data"),
        (b"", "Expecting value"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64 levels at byte 64"),
        (b'{"a":' * 100000, "nested deeper"),
        (b" " * (1 << 20) + b"1", "larger than 1048576 bytes"),
        (b"[1,]", "line 1"),
        (b"'a'", "Expecting value"),
        (b'"a\nb"', "Invalid control character"),
    ],
)
def test_what_strict_json_refuses(data: bytes, text: str) -> None:
    with pytest.raises(canonical.StrictJSONError) as caught:
        canonical.loads(data)
    assert text in str(caught.value)


def test_brackets_inside_strings_are_not_depth() -> None:
    text = "[{" * 100 + '"' + "\\"
    assert canonical.loads(json.dumps([text]).encode()) == [text]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, 1e16, {1: 2}, {"a": b"x"}, "\ud800", {"\ud800": 1}, {1, 2}]
)
def test_what_cannot_be_read_is_not_written(value: object) -> None:
    with pytest.raises(canonical.StrictJSONError):
        canonical.dumps(value)


def test_a_cycle_is_an_error() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(canonical.StrictJSONError, match="nested deeper"):
        canonical.dumps(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_strict_json_error(data: bytes) -> None:
    try:
        value = canonical.loads(data)
    except canonical.StrictJSONError:
        return
    assert canonical.loads(canonical.dumps(value)) == value


def test_unterminated_string_of_escaped_quotes_is_refused_in_linear_time() -> None:
    with pytest.raises(canonical.StrictJSONError):
        canonical.loads(b'{"a": "' + b'\\"' * 300_000)


def test_integers_up_to_a_wider_limit_on_request() -> None:
    assert canonical.loads(b"[18446744073709551615]", limit=1 << 64) == [2**64 - 1]
    with pytest.raises(canonical.StrictJSONError, match=r"2\^64"):
        canonical.loads(b"[-18446744073709551616]", limit=1 << 64)
