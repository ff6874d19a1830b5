"""The published JSON Schemas, and validation against them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators

NAMES = ("manifest", "report", "envelope")


@cache
def text(name: str) -> str:
    """The schema file as published; KeyError for an unknown name."""
    if name not in NAMES:
        raise KeyError(name)
    return resources.files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8")


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """ECMAScript's ``$`` is the end of the text; Python's also matches before a last line feed."""
    if isinstance(instance, str) and not re.search(pattern.replace("$", r"\Z"), instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator: Any = validators.extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]


@cache
def validator(name: str) -> Any:
    """A validator of one published schema; no pattern of ours holds a literal dollar sign."""
    return _Validator(json.loads(text(name)))


@cache
def strict_validator(name: str) -> Any:
    """The schema as a writer must meet it: no key beyond those that it names."""
    return _Validator(_closed(json.loads(text(name))))


def _closed(schema: Any) -> Any:
    """Close every object that names its properties."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _closed(value) for key, value in schema.items() if key not in ("if", "then", "else")}
    result.update({key: schema[key] for key in ("if", "then", "else") if key in schema})
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        result.setdefault("additionalProperties", False)
    return result


def errors(name: str, document: Any, *, strict: bool = False) -> Iterator[ValidationError]:
    """Every violation, those inside a chosen alternative instead of "is not valid under any"."""
    chosen = strict_validator(name) if strict else validator(name)
    for error in chosen.iter_errors(document):
        yield from narrow(error)


def narrow(error: Any) -> Iterator[ValidationError]:
    """Replace the failure of a oneOf by the failures of the alternative that was meant.

    The alternative meant is the one whose first required key is present.
    """
    if error.validator != "oneOf" or not isinstance(error.instance, Mapping) or not error.context:
        yield error
        return
    for index in range(len(error.validator_value)):
        branch = [item for item in error.context if item.schema_path and item.schema_path[0] == index]
        missing = [item for item in branch if item.validator == "required" and not item.absolute_path]
        meant = not any(_lacks_first(item, error) for item in branch)
        if branch and meant and not missing:
            for item in branch:
                yield from narrow(item)
            return
    yield error


def _lacks_first(item: Any, parent: Any) -> bool:
    """Whether ``item`` says that its alternative's first required key is absent."""
    same = item.absolute_path == parent.absolute_path
    return bool(same and item.validator == "required" and item.validator_value[0] not in item.instance)
