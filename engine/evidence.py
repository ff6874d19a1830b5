"""Evidence of choice: what a model gave to each alternative, in records, and how well it was calibrated.

A record (``Choice``) says, at one point of a constrained document, which probability each alternative
had: all tokenisations of it together, from raw logits at temperature 1, before penalties and masks.
``engine.witness`` makes records; docs/constraints.md defines them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from engine import arguments
from engine.errors import UsageError

__all__ = ["MAX_EVALUATIONS", "Alternative", "Calibration", "Choice", "Choices", "calibration"]

MAX_EVALUATIONS = 1024
MAX_RECORDED = 64
# Prefixes that are evaluated before the next best are looked for: part of what a record is.
ROUND = 4
BINS = 10
What = Literal["value", "key", "text", "name"]


@dataclass(frozen=True)
class Choices:
    """How far the search behind each record goes.

    ``evaluations`` bounds the prefixes that are evaluated for one record. The search ends before that once
    the mass left unresolved is at most ``tolerance`` times what is resolved; 0: only when nothing is left.
    """

    evaluations: int = 32
    tolerance: float = 2.0**-20

    def __post_init__(self) -> None:
        count = arguments.integer(self.evaluations, "evaluations", high=2**31)
        if not 0 <= count <= MAX_EVALUATIONS:
            raise UsageError(f"evaluations must lie in 0 … {MAX_EVALUATIONS}, not {count}")
        if not isinstance(self.tolerance, Real) or not 0 <= self.tolerance < 1:
            raise UsageError(f"tolerance must lie in 0 … 1, without 1, not {self.tolerance!r}")


@dataclass(frozen=True)
class Alternative:
    """One alternative: its JSON text (or the text itself), and its value, None for the end of a container.

    ``logprob`` is the natural logarithm of the resolved mass of all its tokenisations, under the full
    vocabulary; None: none was resolved. ``prob`` is that mass among all that was resolved.
    """

    value: Any
    text: str
    prob: float | None
    logprob: float | None


@dataclass(frozen=True)
class Choice:
    """One point of a document where finitely many alternatives stood.

    ``index`` is that of the emitted token that was chosen there. ``alternatives`` descend in mass, at most
    64 of ``n_alternatives``. ``chosen`` is the text of the one that the document took; None where it was
    cut before the model had written one. ``coverage`` is the probability mass that was resolved,
    ``unresolved`` that of the prefixes that were not followed: an alternative's true mass is at most its
    own and that together. ``tool_call`` is the number of the call in whose arguments ``pointer`` is.
    """

    kind: What
    pointer: str
    index: int
    alternatives: tuple[Alternative, ...]
    n_alternatives: int
    chosen: str | None
    coverage: float
    unresolved: float
    evaluations: int
    tool_call: int | None = None

    def document(self) -> dict[str, Any]:
        """The record as JSON."""
        made: dict[str, Any] = {
            "kind": self.kind,
            "pointer": self.pointer,
            "index": self.index,
            "alternatives": [vars(alternative) for alternative in self.alternatives],
            "n_alternatives": self.n_alternatives,
            "chosen": self.chosen,
            "coverage": self.coverage,
            "unresolved": self.unresolved,
            "evaluations": self.evaluations,
        }
        return made if self.tool_call is None else made | {"tool_call": self.tool_call}


@dataclass(frozen=True)
class Calibration:
    """``ece`` and ``brier`` over ``rows`` records; ``skipped`` had no probabilities."""

    ece: float
    brier: float
    rows: int
    skipped: int


def calibration(records: Iterable[Mapping[str, Any]]) -> Calibration:
    """Expected calibration error and Brier score of records whose truth is known.

    Each record is a ``Choice.document()`` with the text of the true alternative as ``correct``. The
    confidence is the best probability, a hit that the best alternative is the true one. ECE: the sum over
    ten bins of equal width (the last one closed) of their share of the records times how far their hit
    rate is from their mean confidence. Brier: the mean over records of the sum over alternatives of
    (probability - truth)², and 1 more where the truth is none of them. Raises UsageError where a record
    is malformed, or none has probabilities.
    """
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    squares: list[float] = []
    skipped = 0
    for index, record in enumerate(records):
        probs, correct = _row(record, index)
        if not probs:
            skipped += 1
            continue
        best = max(probs, key=lambda text: probs[text])
        bins[min(int(probs[best] * BINS), BINS - 1)].append((probs[best], best == correct))
        missed = 0.0 if correct in probs else 1.0
        squares.append(missed + math.fsum((prob - (text == correct)) ** 2 for text, prob in probs.items()))
    if not squares:
        raise UsageError("no record has probabilities: there is nothing to calibrate")
    gaps = [abs(math.fsum(hit - confidence for confidence, hit in rows)) for rows in bins]
    return Calibration(
        math.fsum(gaps) / len(squares), math.fsum(squares) / len(squares), len(squares), skipped
    )


def _row(record: Mapping[str, Any], index: int) -> tuple[dict[str, float], str]:
    """Probabilities by text, and the true text."""
    correct, alternatives = record.get("correct"), record.get("alternatives")
    if not isinstance(correct, str):
        raise UsageError(f"record {index}: correct must be the text of an alternative")
    if not isinstance(alternatives, list | tuple):
        raise UsageError(f"record {index}: alternatives must be a list")
    probs: dict[str, float] = {}
    for alternative in alternatives:
        text = alternative.get("text") if isinstance(alternative, Mapping) else None
        prob = alternative.get("prob") if isinstance(alternative, Mapping) else None
        if not isinstance(text, str) or text in probs:
            raise UsageError(f"record {index}: every alternative has a text of its own")
        if prob is None:
            continue
        if not isinstance(prob, int | float) or isinstance(prob, bool) or not 0 <= prob <= 1:
            raise UsageError(f"record {index}: prob of {text!r} must lie in 0 … 1, not {prob!r}")
        probs[text] = float(prob)
    return probs, correct
