"""The protocols in which model families call tools: one row each, recognised by the chat template.

A family's template writes tools and history into the prompt; its row says how a call looks in what the
model writes. To add a family, add a row. ``GENERIC`` is for models whose template knows no tools, or an
unknown protocol: a system turn (``generic_turn``) then teaches a JSON envelope, and history is written in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.template import Template


@dataclass(frozen=True, slots=True)
class Family:
    """How one family writes calls. Text of control tokens in these fields is those tokens.

    An answer with calls is ``opening``, then for each call ``before_name`` NAME ``after_name`` ARGUMENTS
    ``after_arguments``, with ``between`` between them (None: one call an answer), then ``closing``.
    ``preset`` is the part of the arguments that ``after_name`` contains. In free text a call begins at
    ``trigger``, which opening and before_name begin with; ``first``: only where it begins the answer.
    ``marks`` are texts that a template of this family has, ``not_marks`` such that it has not. ``text``
    precedes an answer that is no call. ``think``: what opens and closes a reasoning prelude, and what
    follows before an answer. ``short_ids``: calls are known by nine letters or digits. ``native``: the
    template writes tools and history.
    """

    name: str
    marks: tuple[str, ...]
    before_name: str
    after_name: str
    after_arguments: str
    trigger: str
    not_marks: tuple[str, ...] = ()
    opening: str = ""
    between: str | None = None
    closing: str = ""
    preset: str = ""
    first: bool = False
    text: str = ""
    think: tuple[str, str, str] | None = None
    short_ids: bool = False
    native: bool = True


_THINK = ("<think>", "</think>", "\n\n")

HARMONY = Family(
    name="harmony",
    marks=("<|channel|>", "<|constrain|>"),
    before_name="<|channel|>commentary to=functions.",
    after_name=" <|constrain|>json<|message|>",
    after_arguments="",
    trigger="",
    text="<|channel|>final<|message|>",
    think=("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant"),
)
GEMMA4 = Family(
    name="gemma4",
    marks=("<|tool_call>",),
    before_name="<|tool_call>call:",
    after_name="{",
    preset="{",
    after_arguments="<tool_call|>",
    trigger="<|tool_call>",
    between="",
)
MISTRAL_ARGS = Family(
    name="mistral-args",
    marks=("[TOOL_CALLS]", "[ARGS]"),
    before_name="[TOOL_CALLS]",
    after_name="[ARGS]",
    after_arguments="",
    trigger="[TOOL_CALLS]",
    between="",
    short_ids=True,
)
MISTRAL = Family(
    name="mistral",
    marks=("[TOOL_CALLS]",),
    opening="[TOOL_CALLS][",
    before_name='{"name": "',
    after_name='", "arguments": ',
    after_arguments="}",
    between=", ",
    closing="]",
    trigger="[TOOL_CALLS]",
    short_ids=True,
)
HERMES = Family(
    name="hermes",
    marks=("<tool_call>",),
    not_marks=("<function=",),
    before_name='<tool_call>\n{"name": "',
    after_name='", "arguments": ',
    after_arguments="}\n</tool_call>",
    between="\n",
    trigger="<tool_call>",
)
LLAMA3 = Family(
    name="llama3",
    marks=("<|start_header_id|>", '"parameters"', "ipython"),
    before_name='{"name": "',
    after_name='", "parameters": ',
    after_arguments="}",
    trigger='{"name"',
    first=True,
)
GENERIC = Family(
    name="generic",
    marks=(),
    before_name='{"name": "',
    after_name='", "arguments": ',
    after_arguments="}",
    between="\n",
    trigger='{"name"',
    first=True,
    native=False,
)
# The first whose marks a template has.
FAMILIES = (HARMONY, GEMMA4, MISTRAL_ARGS, MISTRAL, HERMES, LLAMA3)


def family_of(template: Template, *, tools: bool) -> Family:
    """The family of a template; the generic one where it does not know the variable ``tools``."""
    source = template.source(tools=tools)
    if not tools or re.search(r"\btools\b", source):
        for row in FAMILIES:
            if all(mark in source for mark in row.marks) and not any(
                mark in source for mark in row.not_marks
            ):
                return row
    return GENERIC


def thinking_of(template: Template, family: Family, *, tools: bool) -> tuple[str, str, str] | None:
    """What opens and closes reasoning in the answers of this model, and what then follows."""
    if family.think is not None:
        return family.think
    return _THINK if "<think>" in template.source(tools=tools) else None


def generic_turn(tools: Sequence[Mapping[str, Any]], *, required: bool, parallel: bool) -> str:
    """The system text that teaches the generic envelope."""
    lines = [
        "You can call these functions (name, what it does, JSON Schema of its arguments):",
        *(json.dumps(tool["function"], ensure_ascii=False) for tool in tools),
        'To call one, answer only with JSON of this form: {"name": "NAME", "arguments": {…}}',
    ]
    if parallel:
        lines.append("To call several, write one such JSON object a line.")
    if not required:
        lines.append("If no function is needed, answer in plain text.")
    return "\n".join(lines)


def generic_history(messages: Sequence[Mapping[str, Any]], turn: str | None) -> list[dict[str, Any]]:
    """Messages for a template that knows no tools: calls and results as text, the turn in the system text.

    Results of calls are a user's turn; turns of one role that follow each other are joined, as some
    templates insist on alternating roles.
    """
    plain = [_plain(message) for message in messages]
    if turn is not None:
        system = plain.pop(0)["content"] + "\n\n" if plain and plain[0]["role"] == "system" else ""
        plain.insert(0, {"role": "system", "content": system + turn})
    joined: list[dict[str, Any]] = []
    for message in plain:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """One message as role and text."""
    if message["role"] == "tool":
        result = {"name": message.get("name"), "result": message["content"]}
        return {"role": "user", "content": json.dumps(result, ensure_ascii=False)}
    calls = [
        json.dumps({key: call["function"][key] for key in ("name", "arguments")}, ensure_ascii=False)
        for call in message.get("tool_calls", ())
    ]
    content = "\n".join([*([message["content"]] if message["content"] else []), *calls])
    kept = {key: value for key, value in message.items() if key in ("role", "reasoning_content")}
    return {**kept, "content": content}
