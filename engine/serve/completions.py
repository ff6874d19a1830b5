"""The shape of /v1/completions."""

from __future__ import annotations

import codecs
from typing import Any

from engine.serve.events import Calls, Evidence, Finished, Scored, Text, token_label
from engine.serve.shape import Head, Usage

KIND = "text_completion"


class _Choice:
    """Text so far of one choice, and where in it the next token begins."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.finished: Finished | None = None
        self.evidence: list[dict[str, Any]] = []
        self.logprobs: dict[str, list[Any]] = _no_logprobs()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def add(self, event: Text) -> dict[str, list[Any]]:
        """Keep a piece of text; returns the log-probabilities of this piece alone."""
        fresh = _no_logprobs()
        self.text.append(event.text)
        self._offset -= event.lead
        for scored in event.scored:
            fresh["tokens"].append(token_label(scored.chosen.token))
            fresh["token_logprobs"].append(scored.chosen.logprob)
            fresh["top_logprobs"].append(_top(scored))
            fresh["text_offset"].append(max(0, self._offset))
            self._offset += len(self._decoder.decode(scored.chosen.token))
        for name, values in fresh.items():
            self.logprobs[name].extend(values)
        return fresh


class CompletionShape:
    """One choice for every prompt of the request."""

    def __init__(self, head: Head, prompts: int) -> None:
        self.usage = Usage()
        self._head = head
        self._choices = [_Choice() for _ in range(prompts)]

    def opening(self) -> list[dict[str, Any]]:
        """Nothing: the first chunk has text."""
        return []

    def text(self, event: Text) -> dict[str, Any]:
        """A piece of text with the log-probabilities of its tokens."""
        fresh = self._choices[event.index].add(event)
        return self._chunk(event.index, event.text, fresh, None)

    def finished(self, event: Finished) -> dict[str, Any]:
        """Empty text with the reason."""
        self.usage.add(event)
        self._choices[event.index].finished = event
        return self._chunk(event.index, "", _no_logprobs(), event) | self._head.extension()

    def evidence(self, event: Evidence) -> dict[str, Any]:
        """Empty text with the records."""
        self._choices[event.index].evidence.extend(event.documents)
        chunk = self._chunk(event.index, "", _no_logprobs(), None)
        chunk["choices"][0]["choice_logprobs"] = event.documents
        return chunk

    def calls(self, event: Calls) -> list[dict[str, Any]]:
        """A raw prompt has no tools."""
        return []

    def closing(self) -> list[dict[str, Any]]:
        """The usage, where it was asked for."""
        if not self._head.options.include_usage:
            return []
        return [self._head.document(KIND, [], usage=self.usage.document())]

    def whole(self) -> dict[str, Any]:
        """A ``text_completion``."""
        choices = [
            self._choice(index, "".join(choice.text), choice.logprobs, choice.finished)
            for index, choice in enumerate(self._choices)
        ]
        if self._head.options.choices is not None:
            for made, choice in zip(choices, self._choices, strict=True):
                made["choice_logprobs"] = choice.evidence
        return self._head.document(KIND, choices, usage=self.usage.document(), **self._head.extension())

    def _choice(
        self, index: int, text: str, logprobs: dict[str, list[Any]], end: Finished | None
    ) -> dict[str, Any]:
        wanted = None if self._head.options.logprobs is None else logprobs
        reason, more = (None, {}) if end is None else (end.reason, end.extension)
        return {"index": index, "text": text, "logprobs": wanted, "finish_reason": reason, **more}

    def _chunk(
        self, index: int, text: str, fresh: dict[str, list[Any]], end: Finished | None
    ) -> dict[str, Any]:
        more = {"usage": None} if self._head.options.include_usage else {}
        return self._head.document(KIND, [self._choice(index, text, fresh, end)], **more)


def _no_logprobs() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def _top(scored: Scored) -> dict[str, float | None] | None:
    """The likeliest tokens and always the chosen one; None for a prompt's first token."""
    if scored.chosen.logprob is None:
        return None
    return {token_label(likely.token): likely.logprob for likely in (*scored.top, scored.chosen)}
