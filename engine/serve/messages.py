"""Messages of a chat request, as templates take them."""

from __future__ import annotations

from typing import Any

from engine import canonical
from engine.serve import fields
from engine.serve.errors import invalid, shorten
from engine.text import printable

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
# What the openai SDK writes into an assistant message that a client sends back.
_EMPTY_FIELDS = ("function_call", "refusal", "audio", "annotations", "parsed")
_ARGUMENTS_BYTES = 1 << 20


def messages(value: Any) -> list[dict[str, Any]]:
    """Role and text of each; an assistant's ``tool_calls`` with their arguments as objects, a tool's
    ``tool_call_id`` with the ``name`` of the function, an assistant's ``reasoning_content``."""
    if not isinstance(value, list):
        raise invalid("messages", "must be a list of messages", "invalid_type")
    if not value:
        raise invalid("messages", "must hold at least one message")
    called: dict[str, str] = {}
    found = []
    for index, item in enumerate(value):
        message = _message(item, f"messages[{index}]", called)
        called |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls", ())}
        found.append(message)
    return found


def _message(value: Any, where: str, called: dict[str, str]) -> dict[str, Any]:
    message = fields.mapping(value, where)
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        wanted = f"must be one of {', '.join(_ROLES)}; {shorten(role)} is not supported"
        raise invalid(f"{where}.role", wanted, "unsupported_value")
    own = {"assistant": ("tool_calls", "reasoning_content"), "tool": ("tool_call_id",)}.get(role, ())
    for name, entry in message.items():
        if name in ("role", "content", "name", *own) or (name in _EMPTY_FIELDS and entry in (None, [], "")):
            continue
        if name in ("tool_calls", "reasoning_content", "tool_call_id") and entry in (None, [], ""):
            continue
        if name in _EMPTY_FIELDS:
            raise invalid(f"{where}.{name}", "is not supported; only null is taken", "unsupported_value")
        raise fields.unknown(f"{where}.{name}")
    if message.get("name") is not None:
        fields.text(message["name"], f"{where}.name")
    if role == "assistant":
        return _assistant(message, where)
    made = {"role": _ROLES[role], "content": _content(message.get("content"), f"{where}.content")}
    return made | _result(message, where, called) if role == "tool" else made


def _assistant(message: dict[str, Any], where: str) -> dict[str, Any]:
    calls = [] if message.get("tool_calls") in (None, "") else message["tool_calls"]
    if not isinstance(calls, list):
        raise invalid(f"{where}.tool_calls", "must be a list of calls", "invalid_type")
    content = message.get("content")  # null: an answer of calls, or one that was cut before any text
    made: dict[str, Any] = {
        "role": "assistant",
        "content": "" if content is None else _content(content, f"{where}.content"),
    }
    if calls:
        made["tool_calls"] = [_call(item, f"{where}.tool_calls[{index}]") for index, item in enumerate(calls)]
    if message.get("reasoning_content"):
        where = f"{where}.reasoning_content"
        made["reasoning_content"] = fields.text(message["reasoning_content"], where)
    return made


def _call(value: Any, where: str) -> dict[str, Any]:
    call = fields.mapping(value, where)
    for name in call:
        if name not in ("id", "type", "function", "index"):
            raise fields.unknown(f"{where}.{name}")
    if call.get("type", "function") != "function":
        raise invalid(f"{where}.type", "only function calls are supported", "unsupported_value")
    function = fields.mapping(call.get("function"), f"{where}.function")
    for name in function:
        if name not in ("name", "arguments", "parsed_arguments"):
            raise fields.unknown(f"{where}.function.{name}")
    name = fields.text(function.get("name"), f"{where}.function.name")
    arguments = _arguments(function.get("arguments"), f"{where}.function.arguments")
    return {
        "id": fields.text(call.get("id"), f"{where}.id"),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _arguments(value: Any, where: str) -> dict[str, Any]:
    """The JSON object of a call's arguments; no text is none."""
    text = fields.text(value, where)
    if not text.strip():
        return {}
    try:
        found = canonical.loads(
            text.encode("utf-8", "surrogatepass"), max_bytes=_ARGUMENTS_BYTES, max_depth=512, limit=1 << 64
        )
    except canonical.StrictJSONError as error:
        raise invalid(where, f"is not acceptable JSON: {printable(error)}") from None
    return fields.mapping(found, where)


def _result(message: dict[str, Any], where: str, called: dict[str, str]) -> dict[str, Any]:
    """What a tool message names: the call that it answers."""
    if message.get("tool_call_id") is None:
        raise invalid(f"{where}.tool_call_id", "is required", "missing_field")
    identity = fields.text(message["tool_call_id"], f"{where}.tool_call_id")
    name = message.get("name") or called.get(identity)
    if name is None:
        wanted = f"{shorten(identity)} is the id of no call in the messages before"
        raise invalid(f"{where}.tool_call_id", wanted)
    return {"tool_call_id": identity, "name": name}


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise invalid(where, "must be a string or a list of text parts", "invalid_type")
    return "".join(_part(item, f"{where}[{index}]") for index, item in enumerate(value))


def _part(value: Any, where: str) -> str:
    part = fields.mapping(value, where)
    if part.get("type") != "text":
        kind = shorten(part.get("type"))
        raise invalid(f"{where}.type", f"only text parts are supported, not {kind}", "unsupported_value")
    for name in part:
        if name not in ("type", "text"):
            raise fields.unknown(f"{where}.{name}")
    return fields.text(part.get("text"), f"{where}.text")
