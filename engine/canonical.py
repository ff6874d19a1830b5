"""Strict JSON in, canonical JSON out (RFC 8785), and the digest of a document.

Reading refuses by name what RFC 7493 (I-JSON) leaves undefined: duplicate keys, NaN and
infinities, numbers of magnitude 2^53 or more, lone surrogates, invalid UTF-8, a byte-order mark,
and documents past a size or a depth. Writing refuses the same values, so what is written can be read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from functools import partial
from typing import Any

import rfc8785

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
LIMIT = 1 << 53
# Possessive, and content with an unterminated string: linear in time and memory on any input.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class StrictJSONError(ValueError):
    """The document or value has no strict JSON form; the text says why."""


def loads(data: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, limit: int = LIMIT) -> Any:
    """Parse one strict JSON document from its bytes. Integers stay below ``limit`` in magnitude."""
    if len(data) > max_bytes:
        raise StrictJSONError(f"larger than {max_bytes} bytes")
    _check_depth(data, max_depth)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJSONError(f"invalid UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise StrictJSONError("starts with a byte-order mark")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=partial(_integer, limit=limit),
            parse_float=_float,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise StrictJSONError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    _check_surrogates(value)
    return value


def dumps(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value; raises StrictJSONError where it has none."""
    _check_value(value, 0)
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise StrictJSONError(str(error)) from None


def digest(value: Any) -> str:
    """SHA-256 of the canonical form, lower-case hex."""
    return hashlib.sha256(dumps(value)).hexdigest()


def _check_depth(data: bytes, max_depth: int) -> None:
    """Refuse deep nesting before the recursive parser sees it."""
    depth = 0
    for match in _TOKEN.finditer(data):
        first = match.group()[:1]
        if first in b"[{":
            depth += 1
            if depth > max_depth:
                raise StrictJSONError(f"nested deeper than {max_depth} levels at byte {match.start()}")
        elif first in b"]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise StrictJSONError(f"duplicate key {key!r}")
        result[key] = value
    return result


def _integer(text: str, *, limit: int) -> int:
    if len(text) > 21 or abs(int(text)) >= limit:
        raise StrictJSONError(f"integer {text[:24]} is not below 2^{limit.bit_length() - 1} in magnitude")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not abs(value) < LIMIT:
        raise StrictJSONError(f"number {text[:24]} is not below 2^53 in magnitude")
    return value


def _constant(text: str) -> float:
    raise StrictJSONError(f"{text} is not a JSON number")


def _check_surrogates(value: Any) -> None:
    for text in _strings(value):
        if _SURROGATE.search(text):
            raise StrictJSONError(f"lone surrogate in {text[:40]!r}")


def _strings(value: Any) -> list[str]:
    found: list[str] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            found.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found


def _check_value(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise StrictJSONError(f"nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_surrogates(value)
    elif isinstance(value, (int, float)):
        if not math.isfinite(value) or abs(value) >= LIMIT:
            raise StrictJSONError(f"number {value!r:.24} is not finite and below 2^53 in magnitude")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise StrictJSONError(f"key {key!r} is not a string")
            _check_surrogates(key)
            _check_value(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_value(item, depth + 1)
    else:
        raise StrictJSONError(f"{type(value).__name__} has no JSON form")
