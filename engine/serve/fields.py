"""The three published lists of request fields: this module is the list, docs/serve.md prints it.

``IMPLEMENTED`` fields act. ``IGNORED`` fields are accepted, their type is checked, and they do
nothing. ``NEUTRAL`` fields are accepted only with a value that asks for nothing. Any other
field is 400 and named. ``null`` is the same as an absent field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.evidence import Choices
from engine.serve.errors import ApiError, invalid, shorten

CHAT = "chat"
COMPLETIONS = "completions"
BOTH = (CHAT, COMPLETIONS)
ROUTES = {CHAT: "/v1/chat/completions", COMPLETIONS: "/v1/completions"}
MAX_STOPS = 4
MAX_STOP_CHARS = 1024
MAX_TOP_LOGPROBS = 20
MAX_PROMPTS = 64
MAX_PROBE = 256

Parse = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """One row: ``accepts`` and ``note`` are for the documentation, ``parse`` is the rule."""

    name: str
    surfaces: tuple[str, ...]
    accepts: str
    note: str
    parse: Parse


def boolean(value: Any, param: str) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise _wrong(param, "true or false", value)
    return value


def text(value: Any, param: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise _wrong(param, "a string", value)
    return value


def mapping(value: Any, param: str) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise _wrong(param, "an object", value)
    return value


def integer(low: int, high: int) -> Parse:
    """An integer of [low, high]; 1.0 is not one."""

    def parse(value: Any, param: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(param, "an integer", value)
        if not low <= value <= high:
            raise invalid(param, f"must be between {low} and {high}, not {shorten(value)}", "out_of_range")
        return value

    return parse


def number(low: float, high: float) -> Parse:
    """A number of [low, high]."""

    def parse(value: Any, param: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong(param, "a number", value)
        if not low <= value <= high:
            raise invalid(
                param, f"must be between {low:g} and {high:g}, not {shorten(value)}", "out_of_range"
            )
        return float(value)

    return parse


def stops(value: Any, param: str) -> tuple[str, ...]:
    """One stop string or a list of at most MAX_STOPS, none empty."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise _wrong(param, "a string or a list of strings", value)
    if len(items) > MAX_STOPS:
        raise invalid(param, f"holds {len(items)} strings; at most {MAX_STOPS} are taken", "out_of_range")
    for index, item in enumerate(items):
        where = f"{param}[{index}]" if isinstance(value, list) else param
        if not 1 <= len(text(item, where)) <= MAX_STOP_CHARS:
            raise invalid(where, f"must hold 1 to {MAX_STOP_CHARS} characters", "out_of_range")
    return tuple(items)


def stream_options(value: Any, param: str) -> bool:
    """``include_usage``; ``include_obfuscation`` must be false."""
    options = mapping(value, param)
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            raise unknown(f"{param}.{name}")
    if options.get("include_obfuscation") not in (None, False):
        raise invalid(
            f"{param}.include_obfuscation", "is not supported; only false is taken", "unsupported_value"
        )
    wanted = options.get("include_usage")
    return wanted is not None and boolean(wanted, f"{param}.include_usage")


def raw(value: Any, param: str) -> Any:
    """Checked elsewhere: see requests.py."""
    return value


def one_of(*allowed: Any) -> Parse:
    """Only these values; numbers are equal to numbers only, never to booleans."""

    def parse(value: Any, param: str) -> Any:
        if not any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in allowed):
            names = " or ".join(shorten(item) for item in allowed)
            raise invalid(param, f"is not supported; only {names} is taken", "unsupported_value")
        return value

    return parse


def unknown(param: str, surface: str | None = None) -> ApiError:
    """400 for a field on none of the three lists; one of the other endpoint is said to be that."""
    name = shorten(param, 120).strip("'\"")
    owners = {other for rows in LISTS.values() for row in rows if row.name == param for other in row.surfaces}
    homes = " and ".join(ROUTES[other] for other in ROUTES if other in owners) if surface else ""
    message = f"belongs to {homes}, not to {ROUTES[surface]}" if surface and homes else "is not known here"
    return ApiError(400, f"{name}: this field {message}", code="unknown_field", param=name)


def _wrong(param: str, wanted: str, value: Any) -> ApiError:
    kinds = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return invalid(param, f"must be {wanted}, not {kinds.get(type(value), 'null')}", "invalid_type")


_SEED = integer(-(2**63), 2**64 - 1)
_COUNT = 2**31 - 1

IMPLEMENTED: tuple[Field, ...] = (
    Field("model", BOTH, "string", "a name of `/v1/models`; absent: the served model", text),
    Field("messages", (CHAT,), "list of messages", "see below", raw),
    Field(
        "prompt",
        (COMPLETIONS,),
        "string, list of ids, or list of those",
        f"at most {MAX_PROMPTS} prompts",
        raw,
    ),
    Field("echo", (COMPLETIONS,), "boolean", "false; true puts the prompt before the answer", boolean),
    Field("stream", BOTH, "boolean", "false; true answers with server-sent events", boolean),
    Field("stream_options", BOTH, "object", "`include_usage`; needs `stream: true`", stream_options),
    Field("max_tokens", (CHAT,), "integer ≥ 1", "the rest of the context", integer(1, _COUNT)),
    Field("max_completion_tokens", (CHAT,), "integer ≥ 1", "the same as `max_tokens`", integer(1, _COUNT)),
    Field("max_tokens", (COMPLETIONS,), "integer ≥ 0", "16", integer(0, _COUNT)),
    Field("temperature", BOTH, "0 to 2", "1; 0 is greedy", number(0, 2)),
    Field("top_p", BOTH, "0 to 1", "1 (off)", number(0, 1)),
    Field("top_k", BOTH, "integer ≥ 0", "0 (off)", integer(0, _COUNT)),
    Field("min_p", BOTH, "0 to 1", "0 (off)", number(0, 1)),
    Field("presence_penalty", BOTH, "-2 to 2", "0", number(-2, 2)),
    Field("frequency_penalty", BOTH, "-2 to 2", "0", number(-2, 2)),
    Field("repeat_penalty", BOTH, "0.01 to 10", "1 (off)", number(0.01, 10)),
    Field("seed", BOTH, "integer, -2^63 to 2^64-1", "drawn by the server; taken modulo 2^64", _SEED),
    Field(
        "stop",
        BOTH,
        "string or list of strings",
        f"at most {MAX_STOPS}, each 1 to {MAX_STOP_CHARS} characters",
        stops,
    ),
    Field("logprobs", (CHAT,), "boolean", "false", boolean),
    Field("logprobs", (COMPLETIONS,), "integer, 0 to 20", "off", integer(0, MAX_TOP_LOGPROBS)),
    Field(
        "top_logprobs", (CHAT,), "integer, 0 to 20", "0; needs `logprobs: true`", integer(0, MAX_TOP_LOGPROBS)
    ),
    Field("timeout", BOTH, "seconds, 0 to 86400", "off; ends the answer like a budget", number(0, 86_400)),
    Field("response_format", BOTH, "`text`, `json_object`, `json_schema`", "see Constraints", raw),
    Field("structured_outputs", BOTH, "object", "the same as vLLM writes it; see Constraints", raw),
    Field("guided_json", BOTH, "schema, or its text", "the same as older vLLM writes it", raw),
    Field("guided_regex", BOTH, "string", "a pattern that the whole text matches", raw),
    Field("guided_choice", BOTH, "list of strings", "the text is one of them", raw),
    Field("guided_grammar", BOTH, "string", "a grammar in GBNF (with `::=`) or Lark", raw),
    Field("grammar", BOTH, "string", "the same as llama.cpp writes it", raw),
    Field("choice_logprobs", BOTH, "boolean", "false; see Evidence of choice", boolean),
    Field(
        "choice_logprobs_probe",
        BOTH,
        f"integer, 1 to {MAX_PROBE}",
        f"{Choices().evaluations}; needs `choice_logprobs: true`",
        integer(1, MAX_PROBE),
    ),
    Field("constraint_options", BOTH, "object", "`order`, `whitespace`, `formats`; see Constraints", raw),
    Field("tools", (CHAT,), "list of function tools", "see Tool calls", raw),
    Field("tool_choice", (CHAT,), "string or object", "`auto` with tools, else `none`; see Tool calls", raw),
    Field("parallel_tool_calls", (CHAT,), "boolean", "true where the model's protocol has several", boolean),
    Field("thinking_budget", (CHAT,), "integer ≥ 0", "half the budget; see Reasoning", integer(0, _COUNT)),
    Field("chat_template_kwargs", (CHAT,), "object", "further variables for the template", mapping),
)

IGNORED: tuple[Field, ...] = (
    Field("user", BOTH, "string", "identifies an end user", text),
    Field("safety_identifier", (CHAT,), "string", "identifies an end user", text),
    Field("metadata", (CHAT,), "object", "labels of stored answers", mapping),
    Field("store", (CHAT,), "`false`", "nothing is ever stored", one_of(False)),
    Field("service_tier", (CHAT,), "string", "there is one tier", text),
    Field("prompt_cache_key", (CHAT,), "string", "a hint", text),
    Field("prompt_cache_retention", (CHAT,), "string", "a hint", text),
)

NEUTRAL: tuple[Field, ...] = (
    Field("n", BOTH, "`1`", "one answer a request", one_of(1)),
    Field("best_of", (COMPLETIONS,), "`1`", "one answer a prompt", one_of(1)),
    Field("logit_bias", BOTH, "`{}`", "no bias", one_of({})),
    Field("suffix", (COMPLETIONS,), '`""`', "no insertion", one_of("")),
    Field("functions", (CHAT,), "`[]`", "no function calls", one_of([])),
    Field("function_call", (CHAT,), '`"none"` or `"auto"`', "no function calls", one_of("none", "auto")),
    Field("modalities", (CHAT,), '`["text"]`', "text only", one_of(["text"])),
    Field("verbosity", (CHAT,), '`"medium"`', "the model's own", one_of("medium")),
)

LISTS = {"Implemented": IMPLEMENTED, "Accepted and ignored": IGNORED, "Accepted only when neutral": NEUTRAL}


def parse(body: dict[str, Any], surface: str) -> dict[str, Any]:
    """Values of the implemented fields of a body, by name; raises ``ApiError`` for the first bad one."""
    rows = {
        row.name: (row, group is IMPLEMENTED)
        for group in LISTS.values()
        for row in group
        if surface in row.surfaces
    }
    values: dict[str, Any] = {}
    for name, value in body.items():
        if name not in rows:
            raise unknown(name, surface)
        if value is None:
            continue
        row, acts = rows[name]
        parsed = row.parse(value, name)
        if acts:
            values[name] = parsed
    return values


def tables() -> str:
    """The three lists as Markdown, as they stand in docs/serve.md."""
    parts = []
    for title, rows in LISTS.items():
        lines = [
            f"### {title}",
            "",
            "| field | endpoints | takes | default or meaning |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            f"| `{row.name}` | {', '.join(row.surfaces)} | {row.accepts} | {row.note} |" for row in rows
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
