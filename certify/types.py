"""Shared record types of the harness: data only, no behaviour beyond construction.

The public JSON forms of these records are in ``certify/schemas``; ``certify.report`` converts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OutcomeName = Literal["pass", "fail", "skip", "error"]
Number = int | float
JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]


@dataclass(frozen=True)
class Variant:
    """One way of running a check (``threads=2``), with an outcome of its own."""

    name: str
    outcome: OutcomeName
    reason: str | None = None


@dataclass(frozen=True)
class Evidence:
    """A side file written beside the report."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Digest:
    """A ``gblogits/1`` logits digest with what is needed to compute it again elsewhere.

    ``positions`` are indices into ``prompt_ids`` whose logits rows were hashed, ascending. The
    ``identity`` check supplies one: the envelope carries it and ``certify replay`` recomputes it.
    """

    prompt_ids: tuple[int, ...]
    positions: tuple[int, ...]
    vocab: int
    sha256: str
    algorithm: str = "gblogits/1"


@dataclass(frozen=True)
class Outcome:
    """What one check found.

    ``reason`` is a code from ``docs/reasons.md``, never free text, and is required unless the
    outcome is ``pass``; ``detail`` is the sentence for people. Measurements carry their unit
    in the key (``_nats``, ``_ratio``, ``_bytes``, ``_tokens``, ``_s``); None means not measured.
    A threshold is named after its measurement with ``_max`` or ``_min`` added and holds the bar that
    was applied (after any "or twice the floor"): waivers and refusals compare the two by name.
    """

    outcome: OutcomeName
    reason: str | None = None
    detail: str = ""
    measurements: Mapping[str, Number | str | None] = field(default_factory=dict)
    thresholds: Mapping[str, Number] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    digest: Digest | None = None


@dataclass(frozen=True)
class CheckResult:
    """An outcome together with the check that produced it, as it stands in a report."""

    id: str
    version: int
    requirement: str
    outcome: Outcome
    parameters: Mapping[str, JSON]
    elapsed_s: float
