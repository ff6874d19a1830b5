"""What a request's constraint and tools make of its prompt and of its answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from engine import native
from engine.constrain import Constraint, Matcher
from engine.constrain import Options as ConstraintOptions
from engine.errors import ConstraintError
from engine.guide import Guide
from engine.script import Kit, document
from engine.serve.errors import invalid
from engine.serve.families import Family, family_of, generic_history, generic_turn, thinking_of
from engine.serve.formats import compiled
from engine.serve.protocol import Protocol, script
from engine.serve.requests import ChatRequest, Options
from engine.serve.tools import Tool
from engine.spelling import Spelling
from engine.template import Rendered, Template


@dataclass(frozen=True, slots=True)
class Steering:
    """Makes the guide of each choice. ``mixed``: answers hold more than one text, content beside others."""

    make: Callable[[], Guide]
    mixed: bool = False
    tools: bool = False
    short_ids: bool = False


def text_steering(vocab: native.Vocab, options: Options) -> Steering | None:
    """Of a raw prompt; None where nothing is constrained."""
    content = _content(options)
    if content is None:
        return None
    return Steering(lambda: document(vocab, content, options.stop))


def _content(options: Options) -> Constraint | None:
    wanted = options.format
    if wanted is None:
        return None
    return compiled(wanted.kind, wanted.source, options.constraint, wanted.param)


class Chat:
    """One chat request under the template of the model."""

    def __init__(self, vocab: native.Vocab, template: Template, request: ChatRequest) -> None:
        self._vocab = vocab
        self._template = template
        self._request = request
        self._active = request.tools is not None and request.tools.active
        history = any("tool_calls" in message or message["role"] == "tool" for message in request.messages)
        self._family: Family = family_of(template, tools=self._active or history)
        self._plain = not self._family.native and (self._active or history)

    @property
    def _parallel(self) -> bool:
        """Several calls are the default where the model's own protocol has them."""
        given = None if self._request.tools is None else self._request.tools.parallel
        return self._family.native if given is None else given

    def render(self) -> Rendered:
        """The prompt: tools through the template, or in a system turn where it knows none."""
        request = self._request
        documents = (
            [tool.document for tool in request.tools.tools] if request.tools and self._active else None
        )
        if not self._plain:
            return self._template.render(request.messages, tools=documents, **request.variables)
        turn = None
        if documents and request.tools is not None:
            required = request.tools.mode == "required"
            turn = generic_turn(documents, required=required, parallel=self._parallel)
        return self._template.render(generic_history(request.messages, turn), **request.variables)

    def steering(self, prompt: str, room: int) -> Steering | None:
        """What steers the answer to a rendered prompt; ``room`` is what the context leaves, in tokens."""
        request = self._request
        content = _content(request.options)
        if content is None and not self._active:
            return None
        self._check_format(content)
        think = thinking_of(self._template, self._family, tools=self._active)
        if think is not None and prompt.rstrip().endswith(think[1]):
            think = None  # the template closed the prelude: it was switched off
        budget = min(room, request.options.max_tokens or room)
        protocol = Protocol(
            family=self._family,
            tools=self._tools(),
            required=self._active and request.tools is not None and request.tools.mode == "required",
            parallel=self._parallel,
            content=content,
            think=think,
            thinking=min(budget // 2 if request.thinking is None else request.thinking, budget),
            inside=think is not None and prompt.rstrip().endswith(think[0]),
        )
        vocab, stop = self._vocab, request.options.stop
        mixed = self._active or think is not None
        return Steering(
            lambda: script(Kit(vocab, stop), protocol), mixed, self._active, self._family.short_ids
        )

    def _check_format(self, content: Constraint | None) -> None:
        """Refuse tools beside a constraint where a call cannot be told from the beginning of a document."""
        wanted, tools = self._request.options.format, self._request.tools
        if wanted is None or content is None or tools is None or tools.mode != "auto":
            return
        if not self._family.text and Spelling.of(self._vocab).single(self._family.trigger) is None:
            field = wanted.param.split(".")[0]
            message = (
                "goes with tools only where tool_choice is required or none: this model's calls are JSON, too"
            )
            raise invalid(field, message, "unsupported_value")

    def _tools(self) -> dict[str, Constraint]:
        """The constraints of the arguments of all tools that may be called."""
        tools = self._request.tools
        if tools is None or not self._active:
            return {}
        options = self._request.options.constraint
        callable_ = set(tools.callable)
        return {tool.name: _arguments(tool, options) for tool in tools.tools if tool.name in callable_}


def _arguments(tool: Tool, options: ConstraintOptions) -> Constraint:
    """The constraint of a tool's arguments; refused where they need not be an object."""
    made = compiled("json_schema", tool.schema, options, tool.where)
    if "$ref" in tool.schema:  # in drafts up to 7 it hides the type beside it
        for first in b'"[-0123456789tfn':
            with contextlib.suppress(ConstraintError):
                Matcher(made, None).commit_bytes(bytes([first]))
                raise invalid(f"{tool.where}.$ref", "arguments are an object", "unsupported_value")
    return made
