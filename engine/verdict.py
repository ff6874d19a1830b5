"""Verdict rule v1, shared by the report that states a verdict and the loader that recomputes it.

Pure: no files, no clocks. A verdict is stated about bound bytes and one configuration; whether
those bytes and that configuration are the ones at hand is for the caller to establish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["certified", "outside-envelope", "experimental"]

RULE = "v1"
VERDICTS: tuple[Verdict, ...] = ("certified", "outside-envelope", "experimental")
OUTCOMES = ("pass", "fail", "skip", "error")
REQUIRED = ("load", "tokenizer", "greedy_reference", "identity", "fidelity")
"""Checks that must all pass, unwaived, for ``certified``."""
REFUSING = ("load", "tokenizer", "identity", "fidelity")
"""Checks of which one unwaived failure is ``outside-envelope``."""


@dataclass(frozen=True)
class Judged:
    """What the rule sees of one check: its id, outcome, and whether a waiver covers it."""

    id: str
    outcome: str
    waived: bool = False


def verdict_v1(checks: Iterable[Judged], *, bound: bool = True) -> Verdict:
    """Apply rule v1. ``bound`` is False where the artifacts' actual hashes are not the expected ones.

    Raises ValueError on an unknown outcome or an id that occurs twice: neither has a verdict.
    """
    seen: dict[str, Judged] = {}
    for check in checks:
        if check.outcome not in OUTCOMES:
            raise ValueError(f"check {check.id!r} has the unknown outcome {check.outcome!r}")
        if check.id in seen:
            raise ValueError(f"check {check.id!r} occurs twice")
        seen[check.id] = check
    failed = [name for name in REFUSING if name in seen and seen[name].outcome == "fail"]
    if bound and any(not seen[name].waived for name in failed):
        return "outside-envelope"
    # Any waiver on a required check caps the verdict, even beside an outcome that passes.
    clean = all(name in seen and seen[name].outcome == "pass" and not seen[name].waived for name in REQUIRED)
    return "certified" if bound and clean else "experimental"


def not_met(measurements: Mapping[str, Any], thresholds: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the thresholds (``…_max``, ``…_min``) that a figure is past, or that no figure answers to.

    A check with such a threshold did not pass, whatever it states.
    """
    return tuple(
        name for name, limit in thresholds.items() if not _met(measurements.get(name[:-4]), name[-4:], limit)
    )


def _met(value: Any, side: str, limit: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return bool((side == "_max" and value <= limit) or (side == "_min" and value >= limit))
