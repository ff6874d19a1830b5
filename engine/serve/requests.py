"""A request body becomes a typed request, or an ``ApiError`` that names the field."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from engine.constrain import Options as ConstraintOptions
from engine.evidence import Choices
from engine.serve import fields
from engine.serve.errors import ApiError, invalid, shorten
from engine.serve.formats import Format, format_of
from engine.serve.formats import options as constraint_options
from engine.serve.messages import messages
from engine.serve.tools import Tools, tools

COMPLETION_DEFAULT_TOKENS = 16
_OWN_VARIABLES = (
    "self", "source", "name", "now", "messages", "tools", "documents", "add_generation_prompt", "bos_token",
    "eos_token", "unk_token", "pad_token",
)  # fmt: skip
# Text and ids of the prompt; ids stay ids.
Prompt = str | list[int]


@dataclass(frozen=True, slots=True)
class Options:
    """What both endpoints have in common. ``logprobs`` is the number of alternatives, None is off.

    ``format`` constrains the text; ``constraint`` holds the options of every constraint of the request.
    ``timeout`` is in seconds from now. ``choices`` asks for evidence of choice.
    """

    model: str | None
    stream: bool
    include_usage: bool
    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repeat_penalty: float
    seed: int
    stop: tuple[str, ...]
    logprobs: int | None
    timeout: float | None
    format: Format | None
    constraint: ConstraintOptions
    choices: Choices | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Messages and further ``variables`` as the template takes them; ``thinking`` is in tokens."""

    options: Options
    messages: list[dict[str, Any]]
    tools: Tools | None = None
    thinking: int | None = None
    variables: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One choice is made for every prompt, in their order."""

    options: Options
    prompts: list[Prompt]
    echo: bool


def chat_request(body: dict[str, Any]) -> ChatRequest:
    """Validate the body of /v1/chat/completions."""
    values = fields.parse(body, fields.CHAT)
    if "messages" not in values:
        raise invalid("messages", "is required", "missing_field")
    wanted = values.get("logprobs", False)
    if "top_logprobs" in values and not wanted:
        raise invalid("top_logprobs", "needs logprobs: true")
    count = values.get("top_logprobs", 0) if wanted else None
    limit = values.get("max_completion_tokens", values.get("max_tokens"))
    if values.get("max_tokens", limit) != limit:
        raise invalid("max_tokens", "contradicts max_completion_tokens; give one of them")
    return ChatRequest(
        _options(values, limit, count),
        messages(values["messages"]),
        tools(values),
        values.get("thinking_budget"),
        _variables(values.get("chat_template_kwargs", {})),
    )


def completion_request(body: dict[str, Any]) -> CompletionRequest:
    """Validate the body of /v1/completions."""
    values = fields.parse(body, fields.COMPLETIONS)
    if "prompt" not in values:
        raise invalid("prompt", "is required", "missing_field")
    limit = values.get("max_tokens", COMPLETION_DEFAULT_TOKENS)
    options = _options(values, limit, values.get("logprobs"))
    return CompletionRequest(options, _prompts(values["prompt"]), values.get("echo", False))


def _options(values: dict[str, Any], max_tokens: int | None, logprobs: int | None) -> Options:
    stream = values.get("stream", False)
    if "stream_options" in values and not stream:
        raise invalid("stream_options", "needs stream: true")
    seed = values.get("seed")
    return Options(
        model=values.get("model"),
        stream=stream,
        include_usage=values.get("stream_options", False),
        max_tokens=max_tokens,
        temperature=values.get("temperature", 1.0),
        top_p=values.get("top_p", 1.0),
        top_k=values.get("top_k", 0),
        min_p=values.get("min_p", 0.0),
        presence_penalty=values.get("presence_penalty", 0.0),
        frequency_penalty=values.get("frequency_penalty", 0.0),
        repeat_penalty=values.get("repeat_penalty", 1.0),
        seed=secrets.randbits(53) if seed is None else seed % 2**64,
        stop=values.get("stop", ()),
        logprobs=logprobs,
        timeout=values.get("timeout"),
        format=format_of(values),
        constraint=constraint_options(values.get("constraint_options", {}), "constraint_options"),
        choices=_choices(values),
    )


def _choices(values: dict[str, Any]) -> Choices | None:
    """``choice_logprobs`` with ``choice_logprobs_probe``, the evaluations that a record may take."""
    if values.get("choice_logprobs", False):
        return Choices(values.get("choice_logprobs_probe", Choices().evaluations))
    if "choice_logprobs_probe" in values:
        raise invalid("choice_logprobs_probe", "needs choice_logprobs: true")
    return None


def _variables(value: dict[str, Any]) -> dict[str, Any]:
    """Variables for the template, save those that are its own."""
    for name in value:
        if name in _OWN_VARIABLES or not name.isidentifier():
            raise invalid(f"chat_template_kwargs.{shorten(name)}", "is no variable that a request may set")
    return value


def _prompts(value: Any) -> list[Prompt]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise invalid("prompt", "must be a string, a list of token ids, or a list of those", "invalid_type")
    if not value:
        raise invalid("prompt", "must not be an empty list")
    if all(_is_id(item) for item in value):
        return [value]
    if len(value) > fields.MAX_PROMPTS:
        raise invalid(
            "prompt", f"holds {len(value)} prompts; at most {fields.MAX_PROMPTS} are taken", "out_of_range"
        )
    return [_prompt(item, f"prompt[{index}]") for index, item in enumerate(value)]


def _prompt(value: Any, where: str) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_id(item) for item in value):
        return value
    raise invalid(where, "must be a string or a list of token ids", "invalid_type")


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_model(name: str | None, served: tuple[str, ...]) -> None:
    """404 unless the name is absent or one that is served."""
    if name is not None and name not in served:
        message = f"model {shorten(name)} is not served here; /v1/models lists what is"
        raise ApiError(404, message, code="model_not_found", param="model")
