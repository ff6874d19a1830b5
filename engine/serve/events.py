"""What a generation reports while it runs, before any endpoint gives it a shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.evidence import Choice
from engine.guide import CallEnding, Part


@dataclass(frozen=True, slots=True)
class Likely:
    """A token and its natural log-probability from raw logits; None for a prompt's first token."""

    token: bytes
    logprob: float | None


@dataclass(frozen=True, slots=True)
class Scored:
    """One token of the text, and the likeliest tokens in its place, best first."""

    chosen: Likely
    top: tuple[Likely, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The job has left the queue; from here on an error comes inside the answer."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text of choice ``index`` that will not change any more, never half a character.

    ``scored`` holds the tokens that ended with this text, where log-probabilities were asked for.
    ``lead`` is the number of characters by which the tokens' bytes run ahead of the text (the space
    that some vocabularies put before a prompt).
    """

    index: int
    text: str
    scored: tuple[Scored, ...] = field(default=())
    lead: int = 0


@dataclass(frozen=True, slots=True)
class Calls:
    """Reasoning, and parts of tool calls, in the order in which they came."""

    index: int
    reasoning: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Records of the elements that ended, where they were asked for."""

    index: int
    choices: tuple[Choice, ...]

    @property
    def documents(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [choice.document() for choice in self.choices]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a constrained answer ended: whether where the model ended it, if not why, and what it did
    not write. ``calls`` has an entry for each tool call."""

    truncated: bool
    reason: str | None
    filled: tuple[str, ...]
    calls: tuple[CallEnding, ...] = ()

    def document(self) -> dict[str, Any]:
        """The member ``gaugeblock`` of a choice."""
        made: dict[str, Any] = {
            "truncated": self.truncated,
            "reason": self.reason,
            "filled": list(self.filled),
        }
        if self.calls:
            made["tool_calls"] = [
                {
                    "index": index,
                    "truncated": call.truncated,
                    "reason": self.reason if call.truncated else None,
                    "filled": list(call.filled),
                    "name_filled": call.name_filled,
                }
                for index, call in enumerate(self.calls)
            ]
        return made


@dataclass(frozen=True, slots=True)
class Finished:
    """End of choice ``index``: ``reason`` is "stop", "tool_calls" or "length". Counts are tokens, exact.

    ``outcome`` is None where nothing constrained the answer.
    """

    index: int
    reason: str
    prompt_tokens: int
    completion_tokens: int
    outcome: Outcome | None = None

    @property
    def extension(self) -> dict[str, Any]:
        """What a choice has beyond the OpenAI API."""
        return {} if self.outcome is None else {"gaugeblock": self.outcome.document()}


def token_label(token: bytes) -> str:
    """A token as text; bytes that are no whole characters are written ``bytes:\\xNN…``."""
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
