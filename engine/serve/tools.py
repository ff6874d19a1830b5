"""``tools``, ``tool_choice`` and ``parallel_tool_calls`` of a request."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from engine.serve import fields
from engine.serve.errors import invalid, shorten

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """One function. ``document`` is what a template sees; ``schema`` what arguments keep to."""

    name: str
    document: dict[str, Any]
    schema: dict[str, Any]
    where: str


@dataclass(frozen=True, slots=True)
class Tools:
    """All tools of a request, and those that may be called now. ``parallel`` None: not said."""

    tools: tuple[Tool, ...]
    mode: Literal["none", "auto", "required"]
    callable: tuple[str, ...]
    parallel: bool | None

    @property
    def active(self) -> bool:
        """Whether the answer may hold calls."""
        return self.mode != "none"


def tools(values: dict[str, Any]) -> Tools | None:
    """What the three fields ask for; None where there are no tools."""
    choice = values.get("tool_choice")
    given = values.get("tools", [])
    if not isinstance(given, list):
        raise invalid("tools", "must be a list of tools", "invalid_type")
    if not given:
        if choice in (None, "none", "auto"):
            return None
        raise invalid("tool_choice", "needs tools, and there are none")
    rows = tuple(_tool(item, f"tools[{index}]") for index, item in enumerate(given))
    names: dict[str, None] = {}
    for index, row in enumerate(rows):
        if row.name in names:
            raise invalid(f"tools[{index}].function.name", f"{shorten(row.name)} is declared twice")
        names[row.name] = None
    mode, callable_ = _choice("auto" if choice is None else choice, names)
    return Tools(rows, mode, callable_, values.get("parallel_tool_calls"))


def _tool(value: Any, where: str) -> Tool:
    tool = fields.mapping(value, where)
    if tool.get("type") != "function":
        kind = shorten(tool.get("type"))
        raise invalid(f"{where}.type", f"only function tools are supported, not {kind}", "unsupported_value")
    _known(tool, ("type", "function"), where)
    function = fields.mapping(tool.get("function"), f"{where}.function")
    where = f"{where}.function"
    _known(function, ("name", "description", "parameters", "strict"), where)
    name = fields.text(function.get("name"), f"{where}.name")
    if not _NAME.fullmatch(name):
        raise invalid(f"{where}.name", "must be 1 to 128 letters, digits, dots, dashes or underscores")
    if function.get("description") is not None:
        fields.text(function["description"], f"{where}.description")
    if function.get("strict") is not None:
        fields.boolean(function["strict"], f"{where}.strict")
    schema = _parameters(function.get("parameters"), f"{where}.parameters")
    shown = {key: function[key] for key in ("name", "description") if function.get(key) is not None}
    document = {"type": "function", "function": {**shown, "parameters": function.get("parameters") or schema}}
    return Tool(name, document, schema, f"{where}.parameters")


def _parameters(value: Any, where: str) -> dict[str, Any]:
    """The schema of the arguments, which are an object; without one there are none."""
    if value is None:
        return _NO_ARGUMENTS
    schema = fields.mapping(value, where)
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise invalid(f"{where}.type", "arguments are an object", "unsupported_value")
    return {**schema, "type": "object"}


def _choice(
    value: Any, names: Collection[str]
) -> tuple[Literal["none", "auto", "required"], tuple[str, ...]]:
    """Mode and callable tools of ``tool_choice``; ``names`` in the order of the tools."""
    every = tuple(names)
    if value in ("none", "auto", "required"):
        return value, every
    if isinstance(value, str):
        raise invalid("tool_choice", f"must be none, auto, required or an object, not {shorten(value)}")
    choice = fields.mapping(value, "tool_choice")
    if choice.get("type") == "function":
        return "required", (_named(choice, names, "tool_choice"),)
    if choice.get("type") != "allowed_tools":
        raise invalid("tool_choice.type", "must be function or allowed_tools", "unsupported_value")
    _known(choice, ("type", "allowed_tools"), "tool_choice")
    where = "tool_choice.allowed_tools"
    allowed = fields.mapping(choice.get("allowed_tools"), where)
    _known(allowed, ("mode", "tools"), where)
    mode = allowed.get("mode")
    if mode not in ("auto", "required"):
        raise invalid(f"{where}.mode", "must be auto or required", "unsupported_value")
    listed = allowed.get("tools")
    if not isinstance(listed, list) or not listed:
        raise invalid(f"{where}.tools", "must be a list of at least one tool", "invalid_type")
    chosen = {
        _named(fields.mapping(item, f"{where}.tools[{index}]"), names, f"{where}.tools[{index}]")
        for index, item in enumerate(listed)
    }
    return mode, tuple(name for name in names if name in chosen)


def _named(value: dict[str, Any], names: Collection[str], where: str) -> str:
    """The name in ``{"type": "function", "function": {"name"}}``."""
    if value.get("type") != "function":
        raise invalid(f"{where}.type", "only function tools are supported", "unsupported_value")
    _known(value, ("type", "function"), where)
    function = fields.mapping(value.get("function"), f"{where}.function")
    _known(function, ("name",), f"{where}.function")
    name = fields.text(function.get("name"), f"{where}.function.name")
    if name not in names:
        raise invalid(f"{where}.function.name", f"{shorten(name)} is not among the tools")
    return name


def _known(value: dict[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in value:
        if name not in names:
            raise fields.unknown(f"{where}.{name}")
