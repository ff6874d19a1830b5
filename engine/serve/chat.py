"""The shape of /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from engine.serve.events import Finished, Likely, Scored, Text, token_label
from engine.serve.shape import Head, Usage

CHUNK = "chat.completion.chunk"


class ChatShape:
    """One choice with one assistant message."""

    def __init__(self, head: Head) -> None:
        self.usage = Usage()
        self._head = head
        self._text: list[str] = []
        self._scored: list[dict[str, Any]] = []
        self._reason = ""

    def opening(self) -> list[dict[str, Any]]:
        """The role."""
        return [self._chunk({"role": "assistant", "content": ""}, None, None)]

    def text(self, event: Text) -> dict[str, Any]:
        """A content delta with the log-probabilities of its tokens."""
        entries = [_entry(scored) for scored in event.scored]
        self._text.append(event.text)
        self._scored.extend(entries)
        return self._chunk({"content": event.text}, self._logprobs(entries), None)

    def finished(self, event: Finished) -> dict[str, Any]:
        """An empty delta with the reason."""
        self.usage.add(event)
        self._reason = event.reason
        return self._chunk({}, None, event.reason) | self._head.extension()

    def closing(self) -> list[dict[str, Any]]:
        """The usage, where it was asked for."""
        if not self._head.options.include_usage:
            return []
        return [self._head.document(CHUNK, [], usage=self.usage.document())]

    def whole(self) -> dict[str, Any]:
        """A ``chat.completion``."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(self._text), "refusal": None},
            "logprobs": self._logprobs(self._scored),
            "finish_reason": self._reason,
        }
        usage = self.usage.document()
        return self._head.document("chat.completion", [choice], usage=usage, **self._head.extension())

    def _logprobs(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        return None if self._head.options.logprobs is None else {"content": entries, "refusal": None}

    def _chunk(self, delta: dict[str, Any], logprobs: Any, reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        more = {"usage": None} if self._head.options.include_usage else {}
        return self._head.document(CHUNK, [choice], **more)


def _entry(scored: Scored) -> dict[str, Any]:
    return _likely(scored.chosen) | {"top_logprobs": [_likely(likely) for likely in scored.top]}


def _likely(likely: Likely) -> dict[str, Any]:
    return {"token": token_label(likely.token), "logprob": likely.logprob, "bytes": list(likely.token)}
