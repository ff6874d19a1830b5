"""The fields that constrain an answer's text: ``response_format``, and the spellings of other servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine import constrain
from engine.constrain import Constraint, Kind, Options
from engine.errors import ConstraintError
from engine.serve import fields
from engine.serve.errors import ApiError, invalid, shorten
from engine.text import printable


@dataclass(frozen=True, slots=True)
class Format:
    """A constraint that was asked for; ``param`` is the field that refusals name."""

    kind: Kind
    source: Any
    param: str


def compiled(kind: Kind, source: Any, options: Options, param: str) -> Constraint:
    """Compile; what the compiler refuses is 400 for the field, in the compiler's words."""
    try:
        return constrain.compile(kind, source, options)
    except ConstraintError as error:
        message = f"{param}: {printable(error, 500)}"
        raise ApiError(400, message, code="unsupported_constraint", param=param) from None


def format_of(values: dict[str, Any]) -> Format | None:
    """The one constraint of a request; two are a contradiction."""
    found = [made for name, read in _FIELDS.items() if name in values and (made := read(values[name], name))]
    if len(found) > 1:
        first = found[0].param.split(".")[0]
        raise invalid(found[1].param.split(".")[0], f"contradicts {first}; give one constraint")
    return found[0] if found else None


def options(value: Any, param: str) -> Options:
    """``constraint_options``: order, whitespace, formats."""
    given = fields.mapping(value, param)
    for name in given:
        if name not in ("order", "whitespace", "formats"):
            raise fields.unknown(f"{param}.{name}")
    order = fields.one_of("declared", "any")(given.get("order", "declared"), f"{param}.order")
    space = fields.one_of("compact", "free")(given.get("whitespace", "compact"), f"{param}.whitespace")
    formats = fields.boolean(given.get("formats", True), f"{param}.formats")
    return Options(order, space, formats)


def _response_format(value: Any, param: str) -> Format | None:
    given = fields.mapping(value, param)
    kind = given.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        wanted = "must be text, json_object or json_schema"
        raise invalid(f"{param}.type", f"{wanted}, not {shorten(kind)}", "unsupported_value")
    for name, entry in given.items():
        if name != "type" and not (name == "json_schema" and (kind == name or entry is None)):
            raise fields.unknown(f"{param}.{name}")
    if kind == "text":
        return None
    if kind == "json_object":
        return Format("json", "object", param)
    return _json_schema(given.get("json_schema"), f"{param}.json_schema")


def _json_schema(value: Any, param: str) -> Format:
    """name, description, strict, schema; strict or not, the answer keeps to the schema."""
    given = fields.mapping(value, param)
    for name, entry in given.items():
        if name not in ("name", "description", "strict", "schema"):
            raise fields.unknown(f"{param}.{name}")
        if name in ("name", "description") and entry is not None:
            fields.text(entry, f"{param}.{name}")
        if name == "strict" and entry is not None:
            fields.boolean(entry, f"{param}.strict")
    if given.get("name") is None:
        raise invalid(f"{param}.name", "is required", "missing_field")
    return _schema(given.get("schema", True), f"{param}.schema")


def _schema(value: Any, param: str) -> Format:
    if not isinstance(value, dict | bool):
        raise invalid(param, "must be a JSON Schema: an object, true or false", "invalid_type")
    return Format("json_schema", json.dumps(value, ensure_ascii=False), param)


def _schema_or_text(value: Any, param: str) -> Format:
    return Format("json_schema", value, param) if isinstance(value, str) else _schema(value, param)


def _regex(value: Any, param: str) -> Format:
    return Format("regex", fields.text(value, param), param)


def _choice(value: Any, param: str) -> Format:
    if not isinstance(value, list) or not value:
        raise invalid(param, "must be a list of at least one string", "invalid_type")
    for index, item in enumerate(value):
        fields.text(item, f"{param}[{index}]")
    return Format("choice", value, param)


def _grammar(value: Any, param: str) -> Format:
    """GBNF, told by its ``::=``, or else Lark."""
    text = fields.text(value, param)
    return Format("gbnf" if "::=" in text else "lark", text, param)


def _json_object(value: Any, param: str) -> Format | None:
    return Format("json", "object", param) if fields.boolean(value, param) else None


def _structured(value: Any, param: str) -> Format | None:
    given = {name: entry for name, entry in fields.mapping(value, param).items() if entry is not None}
    for name in given:
        if name not in _STRUCTURED:
            raise fields.unknown(f"{param}.{name}")
    if len(given) > 1:
        raise invalid(param, f"must hold one of {', '.join(_STRUCTURED)}, not {len(given)}")
    return next((_STRUCTURED[name](entry, f"{param}.{name}") for name, entry in given.items()), None)


_Read = Callable[[Any, str], Format | None]
_STRUCTURED: dict[str, _Read] = {
    "json": _schema_or_text,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}
_FIELDS: dict[str, _Read] = {
    "response_format": _response_format,
    "structured_outputs": _structured,
    "guided_json": _schema_or_text,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "grammar": _grammar,
}
