"""Generation: sample, decode bytes to text that never splits a character, watch for stop strings."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Literal

from engine import arguments, native
from engine.errors import UsageError

if TYPE_CHECKING:
    from engine.session import Session

Finish = Literal["stop", "stop-string", "length", "context"]
_PENALTIES = ("repeat_penalty", "frequency_penalty", "presence_penalty")


@dataclass(frozen=True)
class Sampling(native.SamplerOptions):
    """How tokens are chosen from logits; the default is greedy.

    ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0, ``repeat_penalty`` 1 and the
    other penalties 0 are off. Penalties look at the prompt and at what was generated, once per
    distinct token. The same ``seed`` gives the same choices, whatever runs beside.
    """

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", *_PENALTIES):
            value = getattr(self, name)
            if not isinstance(value, Real) or not math.isfinite(value):
                raise UsageError(f"{name} must be a finite number")
        if not 0 <= arguments.integer(self.seed, "seed", -(2**63), 2**64) < 2**64:
            raise UsageError(f"seed must lie in 0 … 2^64-1, not {self.seed}")
        if not 0 <= arguments.integer(self.top_k, "top_k", high=2**31) < 2**31:
            raise UsageError(f"top_k must lie in 0 … 2^31-1, not {self.top_k}")

    @property
    def penalised(self) -> bool:
        """Whether the history changes the choice."""
        return tuple(getattr(self, name) for name in _PENALTIES) != (1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Piece:
    """One generated token and the text that became certain with it.

    ``text`` holds whole characters only and may be empty: bytes of an unfinished character, and what
    may be the start of a stop string, wait for later pieces. ``finish`` is set on the last piece:
    "stop" (``token`` is an end token, which has no text), "stop-string" (nothing of it was or will be
    in any text), "length" (``max_tokens``), or "context" (the sequence is full). ``token`` is None
    only where ``max_tokens`` is 0. ``logprob`` and ``top`` (id, value; best first) are natural
    log-probabilities of the raw logits, before temperature and penalties.
    """

    token: int | None
    text: str
    finish: Finish | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class StopStrings:
    """Passes text on, but never a part of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = arguments.strings(stops, "stop")
        if not all(self._stops):
            raise UsageError("a stop string must not be empty")
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Take text; returns what may be shown, and whether a stop string has been completed."""
        buffer = self._held + text
        starts = [at for stop in self._stops if (at := buffer.find(stop)) >= 0]
        if starts:
            self._held = ""
            return buffer[: min(starts)], True
        keep = max((_overlap(buffer, stop) for stop in self._stops), default=0)
        cut = len(buffer) - keep
        self._held = buffer[cut:]
        return buffer[:cut], False

    def flush(self) -> str:
        """What was held back, now that nothing can complete it."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


class TextStream:
    """Bytes of tokens in, text out: whole characters, nothing of a stop string."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = StopStrings(stop)

    def feed(self, data: bytes) -> tuple[str, bool]:
        """Take a token's bytes; returns text and whether a stop string has been completed."""
        return self._stops.feed(self._decoder.decode(data))

    def finish(self) -> tuple[str, bool]:
        """The rest: an unfinished character becomes U+FFFD, held text is released."""
        text, stopped = self._stops.feed(self._decoder.decode(b"", final=True))
        return text + self._stops.flush(), stopped


def generate(
    session: Session,
    ids: Sequence[int],
    *,
    sampling: Sampling,
    max_tokens: int | None,
    stop: Sequence[str],
    logprobs: int | None,
    seq: int,
) -> Iterator[Piece]:
    """See ``Session.generate``. Arguments are checked at once, work starts with the first piece."""
    ids = arguments.listed(ids, "ids")
    if not isinstance(sampling, native.SamplerOptions):
        raise UsageError(f"sampling must be a Sampling, not {arguments.kind(sampling)}")
    if max_tokens is not None and arguments.integer(max_tokens, "max_tokens", high=2**63) < 0:
        raise UsageError(f"max_tokens must not be negative: {max_tokens}")
    if logprobs is not None and arguments.integer(logprobs, "logprobs") < 0:
        raise UsageError(f"logprobs must not be negative: {logprobs}")
    if len(ids) == 0:
        raise UsageError("there is nothing to continue: the prompt is empty")
    run = _Run(session, sampling, max_tokens, logprobs, seq, TextStream(stop))
    return run.pieces(ids)


@dataclass
class _Run:
    """The state of one generation."""

    session: Session
    sampling: Sampling
    max_tokens: int | None
    logprobs: int | None
    seq: int
    stream: TextStream

    def pieces(self, ids: list[int]) -> Iterator[Piece]:
        """Yield pieces; the evaluation of a token waits until the next piece is asked for."""
        if self.max_tokens == 0:
            self.session.eval(ids, seq=self.seq, want="none")
            yield Piece(None, "", "length")
            return
        history, pending, count = ids.copy(), ids, 0
        while True:
            logits = self.session.eval(pending, seq=self.seq)[0]
            past = history if self.sampling.penalised else ()
            token = native.sample(logits, self.sampling, past, count)
            count += 1
            history.append(token)
            piece = self._piece(token, count, logits)
            yield piece
            if piece.finish is not None:
                return
            pending = [token]

    def _piece(self, token: int, count: int, logits: native.Floats) -> Piece:
        logprob, top = self._logprobs(token, logits)
        text, finish = self._text(token, count)
        return Piece(token, text, finish, logprob, top)

    def _text(self, token: int, count: int) -> tuple[str, Finish | None]:
        vocab = self.session.model.vocab
        if vocab.is_end(token):
            text, stopped = self.stream.finish()
            return text, "stop-string" if stopped else "stop"
        text, stopped = self.stream.feed(vocab.token_bytes(token))
        if stopped:
            return text, "stop-string"
        finish: Finish
        if self.max_tokens is not None and count >= self.max_tokens:
            finish = "length"
        elif self.session.length(self.seq) >= self.session.context_tokens:
            finish = "context"
        else:
            return text, None
        rest, stopped = self.stream.finish()
        return text + rest, "stop-string" if stopped else finish

    def _logprobs(
        self, token: int, logits: native.Floats
    ) -> tuple[float | None, tuple[tuple[int, float], ...]]:
        if self.logprobs is None:
            return None, ()
        values = native.log_softmax(logits)
        best = native.top(values, self.logprobs) if self.logprobs else []
        return float(values[token]), tuple((index, float(values[index])) for index in best)
