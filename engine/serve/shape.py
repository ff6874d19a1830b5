"""What the answers of both endpoints share: identity, usage, and the protocol of a shape."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.serve.events import Calls, Evidence, Finished, Text
from engine.serve.requests import Options


@dataclass(slots=True)
class Usage:
    """Exact token counts, summed over choices."""

    prompt: int = 0
    completion: int = 0

    def add(self, event: Finished) -> None:
        """Count one finished choice."""
        self.prompt += event.prompt_tokens
        self.completion += event.completion_tokens

    def document(self) -> dict[str, int]:
        """The ``usage`` object."""
        total = self.prompt + self.completion
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total}


@dataclass(slots=True)
class Head:
    """Members that every chunk and every whole answer of a request begin with."""

    prefix: str
    model: str
    fingerprint: str
    options: Options
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = ""

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{secrets.token_hex(12)}"

    def document(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """An answer or a chunk of it."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
            **more,
        }

    def extension(self) -> dict[str, Any]:
        """The seed that repeats this answer."""
        return {"gaugeblock": {"seed": self.options.seed}}


class Shape(Protocol):
    """Turns events into the documents of one endpoint; one object serves one request."""

    usage: Usage

    def opening(self) -> list[dict[str, Any]]:
        """Chunks before any text."""

    def text(self, event: Text) -> dict[str, Any]:
        """The chunk of one piece of text, which is also kept for ``whole``."""

    def calls(self, event: Calls) -> list[dict[str, Any]]:
        """Chunks of reasoning and of tool calls, which are also kept for ``whole``."""

    def evidence(self, event: Evidence) -> dict[str, Any]:
        """The chunk of some records of choice, which are also kept for ``whole``."""

    def finished(self, event: Finished) -> dict[str, Any]:
        """The chunk that ends one choice."""

    def closing(self) -> list[dict[str, Any]]:
        """Chunks after the last choice."""

    def whole(self) -> dict[str, Any]:
        """The buffered answer."""
