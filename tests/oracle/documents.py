"""Judges of JSON documents that we did not write: the json module, jsonschema, and regress for ECMA patterns.

jsonschema reads `pattern` with Python's `re`, JSON Schema means ECMA-262; and it divides binary floats for
`multipleOf`, so that 75.1 is none of 0.01. Where only these readings refuse a document, ECMA's (the regress
package, where installed) and the decimal numbers that the texts spell decide, and the difference is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jsonschema
from jsonschema.validators import extend, validator_for

try:
    import regress
except ImportError:  # Python's reading then stands alone
    regress = None

PATTERNS = ("pattern", "patternProperties")


class NotJSON(ValueError):
    """The text is no JSON document; why."""


def load(data: bytes) -> Any:
    """Parse strictly: UTF-8, no repeated key, no NaN, no lone surrogate."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise NotJSON(f"{type(error).__name__}: {error}") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotJSON("a key occurs twice")
    return found


def _constant(text: str) -> Any:
    raise NotJSON(f"{text} is no JSON")


@dataclass
class Judge:
    """One schema's validator. ``excused`` counts documents that only Python's `re` or its floats refuse,
    ``unjudged`` those on which the validator itself gives up."""

    schema: Any
    formats: bool = True
    excused: int = 0
    unjudged: int = 0

    def __post_init__(self) -> None:
        kind = _kind(self.schema)
        checker = kind.FORMAT_CHECKER if self.formats else None
        self._python = kind(self.schema, format_checker=checker)
        exact = {"multipleOf": _multiple_of}
        if regress is not None:
            exact |= {"pattern": _pattern, "patternProperties": _pattern_properties}
        self._exact = extend(kind, exact)(self.schema, format_checker=checker)

    def fault(self, document: Any) -> str | None:
        """Why the document breaks the schema; None where it does not."""
        try:
            error = next(self._python.iter_errors(document), None)
        except Exception as trouble:  # a pattern that Python cannot read
            error = trouble
        if error is None:
            return None
        try:
            error = next(self._exact.iter_errors(document), None)
        except Exception as trouble:
            error = trouble
        self.excused += error is None
        if isinstance(error, jsonschema.ValidationError):
            return f"{list(error.absolute_path)}: {error.message[:200]} ({error.validator})"
        self.unjudged += error is not None
        return None


def _kind(schema: Any) -> Any:
    """The validator of the dialect that a schema names, or of the newest one in whose words it is written."""
    named = validator_for(schema, default=None)
    if named is not None:
        return named
    for kind in (jsonschema.Draft202012Validator, jsonschema.Draft7Validator, jsonschema.Draft4Validator):
        try:
            kind.check_schema(schema)
        except jsonschema.SchemaError:
            continue
        return kind
    return jsonschema.Draft202012Validator


def _search(pattern: str, text: str) -> bool:
    try:
        found = regress.Regex(pattern, "u").find(text)
    except regress.RegressError:  # identity escapes, say, which the grammar without u admits
        found = regress.Regex(pattern).find(text)
    return found is not None


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not _search(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _multiple_of(validator: Any, factor: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "number") and Fraction(repr(instance)) % Fraction(repr(factor)) != 0:
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {factor!r}")


def _pattern_properties(validator: Any, table: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in table.items():
        for key, value in instance.items():
            if _search(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


# ---- Features of a schema --------------------------------------------------------------------------

STRATA = (
    "pattern", "format", "patternProperties", "propertyNames", "minProperties", "maxProperties", "not", "if",
    "oneOf", "anyOf", "allOf", "$ref", "contains", "uniqueItems", "prefixItems", "minItems", "maxItems",
    "multipleOf", "minimum", "exclusiveMinimum", "minLength", "maxLength", "const", "enum", "dependencies",
    "additionalProperties", "items", "properties", "non-ascii", "other",
)  # fmt: skip
"""Features, the rarer first: a schema stands in the stratum of each that it has."""


def features(schema: Any) -> set[str]:
    """The keywords that a schema uses anywhere, of those in STRATA."""
    found = {"non-ascii"} if not json.dumps(schema, ensure_ascii=False).isascii() else set()
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            found |= set(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found & set(STRATA) or {"other"}
