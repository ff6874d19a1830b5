"""The shape of /v1/chat/completions."""

from __future__ import annotations

import secrets
import string
from typing import Any

from engine.serve.events import Calls, Evidence, Finished, Likely, Scored, Text, token_label
from engine.serve.shape import Head, Usage

CHUNK = "chat.completion.chunk"
_LETTERS = string.ascii_letters + string.digits


class ChatShape:
    """One choice with one assistant message.

    ``tools``: the answer may hold calls; its content is then null until there is text. ``short_ids``: calls
    are named as templates of the Mistral family insist on.
    """

    def __init__(self, head: Head, *, tools: bool = False, short_ids: bool = False) -> None:
        self.usage = Usage()
        self._head = head
        self._tools = tools
        self._short_ids = short_ids
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._scored: list[dict[str, Any]] = []
        self._evidence: list[dict[str, Any]] = []
        self._finished: Finished | None = None

    def opening(self) -> list[dict[str, Any]]:
        """The role."""
        return [self._chunk({"role": "assistant", "content": None if self._tools else ""}, None, None)]

    def text(self, event: Text) -> dict[str, Any]:
        """A content delta with the log-probabilities of its tokens."""
        entries = [_entry(scored) for scored in event.scored]
        self._text.append(event.text)
        self._scored.extend(entries)
        return self._chunk({"content": event.text}, self._logprobs(entries), None)

    def calls(self, event: Calls) -> list[dict[str, Any]]:
        """A reasoning delta, and one for each part of a call: its name first, then its arguments."""
        chunks = []
        if event.reasoning:
            self._reasoning.append(event.reasoning)
            chunks.append(self._chunk({"reasoning_content": event.reasoning}, None, None))
        for part in event.parts:
            if part.channel == "name":
                self._calls.append(self._call(part.text))
                delta = self._calls[-1] | {"function": {"name": part.text, "arguments": ""}}
            else:
                self._calls[part.call]["function"]["arguments"] += part.text
                delta = {"function": {"arguments": part.text}}
            chunks.append(self._chunk({"tool_calls": [{"index": part.call, **delta}]}, None, None))
        return chunks

    def evidence(self, event: Evidence) -> dict[str, Any]:
        """An empty delta with the records."""
        self._evidence.extend(event.documents)
        return self._chunk({}, None, None, choice_logprobs=event.documents)

    def finished(self, event: Finished) -> dict[str, Any]:
        """An empty delta with the reason."""
        self.usage.add(event)
        self._finished = event
        return self._chunk({}, None, event.reason, **event.extension) | self._head.extension()

    def closing(self) -> list[dict[str, Any]]:
        """The usage, where it was asked for."""
        if not self._head.options.include_usage:
            return []
        return [self._head.document(CHUNK, [], usage=self.usage.document())]

    def whole(self) -> dict[str, Any]:
        """A ``chat.completion``."""
        end = self._finished
        choice = {
            "index": 0,
            "message": self._message(),
            "logprobs": self._logprobs(self._scored),
            "finish_reason": None if end is None else end.reason,
            **({} if end is None else end.extension),
        }
        if self._head.options.choices is not None:
            choice["choice_logprobs"] = self._evidence
        usage = self.usage.document()
        return self._head.document("chat.completion", [choice], usage=usage, **self._head.extension())

    def _message(self) -> dict[str, Any]:
        text = "".join(self._text)
        content = None if self._tools and not text else text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        return message

    def _call(self, name: str) -> dict[str, Any]:
        identity = "".join(secrets.choice(_LETTERS) for _ in range(9 if self._short_ids else 24))
        identity = identity if self._short_ids else f"call_{identity}"
        return {"id": identity, "type": "function", "function": {"name": name, "arguments": ""}}

    def _logprobs(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        return None if self._head.options.logprobs is None else {"content": entries, "refusal": None}

    def _chunk(self, delta: dict[str, Any], logprobs: Any, reason: str | None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason, **more}
        usage = {"usage": None} if self._head.options.include_usage else {}
        return self._head.document(CHUNK, [choice], **usage)


def _entry(scored: Scored) -> dict[str, Any]:
    return _likely(scored.chosen) | {"top_logprobs": [_likely(likely) for likely in scored.top]}


def _likely(likely: Likely) -> dict[str, Any]:
    return {"token": token_label(likely.token), "logprob": likely.logprob, "bytes": list(likely.token)}
