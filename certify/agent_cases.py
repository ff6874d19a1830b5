"""Requests of an agent, in eight families, made by number: the same case is the same bytes everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from certify.truncation_cases import Schema, closed, text

PLACES = ("Paris", "Oslo", "Lima", "Kyoto", "Zürich", "Tromsø", "Łódź", "São Paulo", "Québec", "Αθήνα")
FILES = ("src/main.c", "docs/readme.md", "etc/app.conf", "lib/queue.py", "data/übersicht.csv")
MODES = ("dry-run", "apply", "rollback")
PEOPLE = ("Ana", "Björn", "Chloé", "Dmitri", "Eun-ji")
SIZES = ("tiny", "small", "plain", "large", "giant")
COLOURS = ("red", "green", "blue", "grey", "black", "white", "pink", "teal", "lime", "rust")
LABELS = tuple(f"{size}-{colour}" for size in SIZES for colour in COLOURS)
CUTS = (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class AgentCase:
    """One request and what its answer must be.

    ``tool`` is the tool that must be called with arguments that keep ``schema``; without a tool the
    content keeps it, and without a schema it is free, but there. ``finish``: what finish_reason may be.
    ``silent``: nothing may stand beside the call.
    """

    id: str
    family: str
    body: Mapping[str, Any]
    stream: bool = False
    tool: str | None = None
    schema: Schema | None = None
    finish: frozenset[str] = frozenset({"stop", "length"})
    silent: bool = False


def cases(count: int, families: tuple[str, ...] | None = None) -> list[AgentCase]:
    """``count`` cases, round-robin over the families."""
    names = families or tuple(FAMILIES)
    return [FAMILIES[names[i % len(names)]](i, i // len(names)) for i in range(count)]


def _case(number: int, family: str, body: dict[str, Any], **rest: Any) -> AgentCase:
    if "tool" in rest:
        rest.setdefault("finish", frozenset({"tool_calls", "length"}))
    return AgentCase(f"case-{number:03d}-{family}", family, {"temperature": 0, **body}, **rest)


def _user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def _tool(name: str, description: str, parameters: Schema) -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


JOB = closed(
    {
        "job": closed(
            {
                "mode": {"enum": list(MODES)},
                "targets": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 3,
                    "items": closed(
                        {"path": text(24, 1), "retries": {"type": "integer", "minimum": 1, "maximum": 5}}
                    ),
                },
            }
        ),
        "notify": {"type": "boolean"},
    }
)
DISPATCH = _tool("dispatch_job", "Runs a job on files.", JOB)
LOOKUP_SCHEMA = closed({"place": text(24, 2), "days": {"type": "integer", "minimum": 1, "maximum": 7}})
LOOKUP = _tool("lookup_weather", "Weather of the next days.", LOOKUP_SCHEMA)


def nested_arguments(number: int, turn: int) -> AgentCase:
    """A named tool whose arguments nest three deep."""
    mode, path = MODES[turn % 3], FILES[turn % len(FILES)]
    body = {
        "messages": _user(f"Use mode {mode} on {path} with {turn % 5 + 1} retries, and notify me."),
        "tools": [DISPATCH],
        "tool_choice": _named("dispatch_job"),
        "max_tokens": 96,
    }
    return _case(number, "nested_arguments", body, tool="dispatch_job", schema=JOB)


def tool_selection(number: int, turn: int) -> AgentCase:
    """Two tools, of which the choice names one and then the other."""
    note = closed({"to": {"enum": list(PEOPLE)}, "body": text(32, 1)})
    tools = [LOOKUP, _tool("send_note", "Sends a note to a person.", note)]
    name, schema = (("lookup_weather", LOOKUP_SCHEMA), ("send_note", note))[turn % 2]
    place, person = PLACES[turn % len(PLACES)], PEOPLE[turn % len(PEOPLE)]
    body = {
        "messages": _user(f"Look up {place}, or tell {person} about it."),
        "tools": tools,
        "tool_choice": _named(name),
        "max_tokens": 64,
    }
    return _case(number, "tool_selection", body, tool=name, schema=schema)


def forced_truncation(number: int, turn: int) -> AgentCase:
    """A budget that no answer fits."""
    body = {
        "messages": _user(f"Roll {FILES[turn % len(FILES)]} back."),
        "tools": [DISPATCH],
        "tool_choice": "required",
        "max_tokens": CUTS[turn % len(CUTS)],
    }
    finish = frozenset({"length"})
    return _case(number, "forced_truncation", body, tool="dispatch_job", schema=JOB, finish=finish)


def stream_normalization(number: int, turn: int) -> AgentCase:
    """A stream of plain text."""
    body = {
        "messages": _user(f"Say something about {PLACES[turn % len(PLACES)]}."),
        "max_tokens": 4 + turn % 5,
    }
    return _case(number, "stream_normalization", body, stream=True)


def tool_stream_normalization(number: int, turn: int) -> AgentCase:
    """A stream that ends in a tool call."""
    body = {
        "messages": _user(f"Weather in {PLACES[turn % len(PLACES)]} for {turn % 7 + 1} days?"),
        "tools": [LOOKUP],
        "tool_choice": _named("lookup_weather"),
        "max_tokens": 64,
    }
    return _case(
        number, "tool_stream_normalization", body, stream=True, tool="lookup_weather",
        schema=LOOKUP_SCHEMA, finish=frozenset({"tool_calls"}), silent=True,
    )  # fmt: skip


def large_enum_selection(number: int, turn: int) -> AgentCase:
    """One of fifty labels."""
    schema = closed({"label": {"enum": list(LABELS)}})
    body = {
        "messages": _user(f"Label this item: {LABELS[7 * turn % len(LABELS)]}."),
        "tools": [_tool("set_label", "Sets the label.", schema)],
        "tool_choice": _named("set_label"),
        "max_tokens": 32,
    }
    return _case(number, "large_enum_selection", body, tool="set_label", schema=schema)


def reasoning_then_tool(number: int, turn: int) -> AgentCase:
    """A tool call after prose of the assistant's."""
    place = PLACES[turn % len(PLACES)]
    messages = [
        *_user(f"I travel to {place}. What should I think of?"),
        {"role": "assistant", "content": f"Weather first: {place} can be wet. I would look it up."},
        *_user("Then look it up."),
    ]
    body = {
        "messages": messages,
        "tools": [LOOKUP],
        "tool_choice": _named("lookup_weather"),
        "max_tokens": 64,
    }
    return _case(
        number, "reasoning_then_tool", body, tool="lookup_weather", schema=LOOKUP_SCHEMA, silent=True
    )


def structured_final(number: int, turn: int) -> AgentCase:
    """No tools: the answer itself keeps a schema."""
    schema = closed(
        {
            "place": text(24, 1),
            "rating": {"type": "number", "minimum": 0, "maximum": 5, "multipleOf": 0.5},
            "visited": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": "^[a-z]{2}-[0-9]{2}$"},
        }
    )
    form = {"type": "json_schema", "json_schema": {"name": "visit", "strict": True, "schema": schema}}
    body = {
        "messages": _user(f"Write a record of a visit to {PLACES[turn % len(PLACES)]} as JSON."),
        "response_format": form,
        "max_tokens": 128,
    }
    return _case(number, "structured_final", body, schema=schema)


FAMILIES: Mapping[str, Callable[[int, int], AgentCase]] = {
    function.__name__: function
    for function in (
        nested_arguments,
        tool_selection,
        forced_truncation,
        stream_normalization,
        tool_stream_normalization,
        large_enum_selection,
        reasoning_then_tool,
        structured_final,
    )
}
