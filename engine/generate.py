"""Generation: evaluate, sample under a mask, and end so that what was begun is whole.

A guide (``engine.guide``) says what may come, what must, and which text it is; this module knows
budgets, context, deadline and log-probabilities.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from engine import arguments, native
from engine.errors import ConstraintError, UsageError
from engine.evidence import Choice, Choices
from engine.guide import CallEnding, Guide, Part, Plain, Taken
from engine.stops import StopStrings, TextStream

if TYPE_CHECKING:
    from engine.constrain import Constraint, Matcher
    from engine.session import Session
    from engine.witness import Witness

    Constraining = Constraint | Matcher | Guide

__all__ = ["Finish", "Piece", "Sampling", "StopStrings", "TextStream", "generate"]

Finish = Literal["stop", "stop-string", "length", "context", "deadline"]
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
    "stop" (``token`` is an end token, which has no text, or the one that completed the document),
    "stop-string" (nothing of it was or will be in any text), "length" (``max_tokens``), "context" (the
    sequence is full), or "deadline". ``token`` is None only where ``max_tokens`` is 0 or the deadline
    had passed before. ``logprob`` and ``top`` (id, value; best first) are natural log-probabilities of
    the raw logits, before temperature, penalties and masks.

    Under a constraint, the last piece also says whether the document was ``truncated``, that is, ended
    by a ``finish`` other than the model's own (then the ``reason``), and which values the model did not
    write to their end: ``filled``, JSON pointers. Its text then includes the shortest legal completion.
    ``choices`` are records of the elements that ended with this token, where they were asked for
    (``engine.evidence``). ``reasoning`` is text of a thinking prelude, ``calls`` parts of tool calls,
    ``endings`` how those ended; only a guide of the server's gives any.
    """

    token: int | None
    text: str
    finish: Finish | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    truncated: bool = False
    reason: Finish | None = None
    filled: tuple[str, ...] = ()
    reasoning: str = ""
    calls: tuple[Part, ...] = ()
    endings: tuple[CallEnding, ...] = ()
    choices: tuple[Choice, ...] = ()


def generate(
    session: Session,
    ids: Sequence[int],
    *,
    sampling: Sampling,
    max_tokens: int | None,
    stop: Sequence[str],
    logprobs: int | None,
    seq: int,
    constraint: Constraining | None = None,
    deadline: float | None = None,
    choices: Choices | bool | None = None,
) -> Iterator[Piece]:
    """See ``Session.generate``. Arguments are checked at once, work starts with the first piece."""
    ids = arguments.listed(ids, "ids")
    if not isinstance(sampling, native.SamplerOptions):
        raise UsageError(f"sampling must be a Sampling, not {arguments.kind(sampling)}")
    if max_tokens is not None and arguments.integer(max_tokens, "max_tokens", high=2**63) < 0:
        raise UsageError(f"max_tokens must not be negative: {max_tokens}")
    if logprobs is not None and arguments.integer(logprobs, "logprobs") < 0:
        raise UsageError(f"logprobs must not be negative: {logprobs}")
    if deadline is not None and not isinstance(deadline, Real):
        raise UsageError(f"deadline must be an instant of time.monotonic(), not {arguments.kind(deadline)}")
    if len(ids) == 0:
        raise UsageError("there is nothing to continue: the prompt is empty")
    guide = _guide(session.model.vocab, constraint, stop)
    run = _Run(session, sampling, max_tokens, logprobs, seq, guide, deadline, ids.copy())
    run.witness = _witness(session, seq, guide, choices)
    return run.pieces(ids)


def _guide(vocab: native.Vocab, constraint: Constraining | None, stop: Sequence[str]) -> Guide:
    if constraint is None:
        return Plain(vocab, stop)
    from engine.constrain import Constraint, Matcher

    if isinstance(constraint, Constraint | Matcher):
        from engine.script import document

        return document(vocab, constraint, stop)
    if not callable(getattr(constraint, "forced", None)):
        raise UsageError(f"constraint must be a Constraint or a Matcher, not {arguments.kind(constraint)}")
    if stop:
        raise UsageError("a guide has its own stop strings: give them where it is made")
    return constraint


def _witness(session: Session, seq: int, guide: Guide, choices: Choices | bool | None) -> Witness | None:
    if choices is None or choices is False:
        return None
    wanted = Choices() if choices is True else choices
    if not isinstance(wanted, Choices):
        raise UsageError(f"choices must be a Choices, true or false, not {arguments.kind(wanted)}")
    place = getattr(guide, "place", None)
    if place is None:
        raise UsageError("choices need a constraint: without one there are no alternatives")
    from engine.witness import Witness

    return Witness(session, seq, wanted, place)


@dataclass
class _Run:
    """The state of one generation. ``history`` is what penalties look at."""

    session: Session
    sampling: Sampling
    max_tokens: int | None
    logprobs: int | None
    seq: int
    guide: Guide
    deadline: float | None
    history: list[int]
    count: int = 0
    witness: Witness | None = None
    position: int = 0  # positions that the sequence holds once the newest token is evaluated

    def pieces(self, ids: list[int]) -> Iterator[Piece]:
        """Yield pieces; the evaluation of a token waits until it is needed for the next piece."""
        if self.max_tokens == 0:
            self.session.eval(ids, seq=self.seq, want="none")
            yield self._last(None, self.guide.cut(), "length")
            return
        if self._late():
            yield self._last(None, self.guide.cut(), "deadline")
            return
        self.position = self.session.length(self.seq) + len(ids)
        waiting = ids  # tokens to evaluate before the next choice
        while True:
            forced = self._within_budget(self.guide.forced())
            rows: list[native.Floats] = []
            if forced and self.logprobs is not None:
                rows, waiting = self._rows(waiting, forced), []
            chosen: list[tuple[int, native.Floats | None]]
            if rows:  # as many as the context has room for, and one
                chosen = list(zip(forced, rows, strict=False))
            else:
                chosen = [(token, None) for token in forced] or [self._choose(waiting)]
            for token, row in chosen:
                piece = self._piece(token, row)
                yield piece
                if piece.finish is not None:
                    return
            waiting = [*waiting, *forced] if forced and not rows else [chosen[-1][0]]

    def _within_budget(self, forced: list[int]) -> list[int]:
        return forced if self.max_tokens is None else forced[: self.max_tokens - self.count]

    def _rows(self, waiting: list[int], forced: list[int]) -> list[native.Floats]:
        """The logits in front of each forced token; all but the last are then evaluated."""
        room = self.session.context_tokens - self.session.length(self.seq) - len(waiting)
        rows = list(self.session.eval(waiting, seq=self.seq))
        inner = forced[:-1][:room]
        return rows + (list(self.session.eval(inner, seq=self.seq, want="all")) if inner else [])

    def _choose(self, waiting: list[int]) -> tuple[int, native.Floats]:
        """Evaluate what waits, and sample among what is allowed."""
        logits = self.session.eval(waiting, seq=self.seq)[0]
        if self.witness is not None:
            self.witness.look(logits, self.count)
        past = self.history if self.sampling.penalised else ()
        mask = self.guide.mask()
        if mask is not None and not mask.any():
            raise ConstraintError("dead end: no token of this vocabulary continues or ends the document")
        return native.sample(logits, self.sampling, past, self.count, mask), logits

    def _piece(self, token: int, row: native.Floats | None) -> Piece:
        """Take a token; ``row`` are the logits that it was chosen from, where they are known."""
        self.count += 1
        self.position += 1
        self.history.append(token)
        taken = self.guide.take(token)
        if self.witness is not None and taken.finish != "stop-string":
            self.witness.follow(stopped=taken.finish == "stop")
        finish: Finish | None = taken.finish or self._limit()
        logprob, top = self._logprobs(token, row)
        if finish is None:
            return _compose(token, taken.parts, logprob=logprob, top=top, choices=self._evidence())
        return self._last(token, taken, finish, logprob, top)

    def _last(
        self,
        token: int | None,
        taken: Taken,
        finish: Finish,
        logprob: float | None = None,
        top: tuple[tuple[int, float], ...] = (),
    ) -> Piece:
        parts = taken.parts
        if self.witness is not None:
            self.witness.cut()
        if taken.finish is None and token is not None:
            rest = self.guide.cut()
            parts, finish = parts + rest.parts, rest.finish or finish
        ending = self.guide.ending
        if ending is None:
            return _compose(token, parts, finish=finish, logprob=logprob, top=top)
        return _compose(
            token,
            parts,
            finish=finish,
            logprob=logprob,
            top=top,
            truncated=ending.truncated,
            reason=finish if ending.truncated else None,
            filled=ending.filled,
            endings=ending.calls,
            choices=self._evidence(),
        )

    def _evidence(self) -> tuple[Choice, ...]:
        return () if self.witness is None else self.witness.take()

    def _limit(self) -> Finish | None:
        """Why no further token can come."""
        if self.max_tokens is not None and self.count >= self.max_tokens:
            return "length"
        if self.position > self.session.context_tokens:
            return "context"
        return "deadline" if self._late() else None

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _logprobs(
        self, token: int, logits: native.Floats | None
    ) -> tuple[float | None, tuple[tuple[int, float], ...]]:
        if self.logprobs is None or logits is None:
            return None, ()
        values = native.log_softmax(logits)
        best = native.top(values, self.logprobs) if self.logprobs else []
        return float(values[token]), tuple((index, float(values[index])) for index in best)


def _compose(token: int | None, parts: Sequence[Part], **more: Any) -> Piece:
    """A piece out of the parts of its text."""
    text = "".join(part.text for part in parts if part.channel == "content")
    reasoning = "".join(part.text for part in parts if part.channel == "reasoning")
    calls = tuple(part for part in parts if part.channel in ("name", "arguments"))
    return Piece(token, text, reasoning=reasoning, calls=calls, **more)
