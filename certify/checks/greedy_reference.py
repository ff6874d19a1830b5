"""Greedy picks equal the reference's, teacher-forced on the reference's own ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from certify.reasons import Reason
from certify.references import FloatArray
from certify.targets import Context, EvidenceWriter, stop
from certify.types import Number, Outcome, Variant

REQUIREMENT = (
    "At every position of every prompt, teacher-forced on the reference's ids, the greedy pick MUST equal "
    "the reference's, or both engines MUST rate the two picks within tie_band_nats of each other, "
    "both gaps measured; another number of positions is a real difference. Where max_disputed_ratio allows "
    "it, a pick is disputed, not real, if the reference's own second evaluation of the same ids makes it."
)
VERSION = 1
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "prompts": {"type": "string", "default": "default-16"},
        "reference": {"type": "string", "default": "llama.cpp"},
        "tokens": {"type": "integer", "minimum": 1, "maximum": 100000, "default": 64},
        "tie_band_nats": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
        "max_disputed_ratio": {
            "type": "number",
            "minimum": 0,
            "maximum": 0.05,
            "default": 0,
            "description": "Share of positions that may be disputed; 0: its noise excuses nothing.",
        },
        "max_prompts": {
            "type": "integer",
            "minimum": 1,
            "description": "Only the first so many prompts of the set.",
        },
        "free_running_prompts": {
            "type": "integer",
            "minimum": 0,
            "default": 16,
            "description": "How many prompts are also generated freely. Reported, never judged.",
        },
    },
}

EQUAL, NEAR_TIE, REAL, DISPUTED = "equal", "near_tie", "real", "disputed"


@dataclass(frozen=True)
class Pick:
    """One position: both picks, and how far below each engine's own pick it rates the other's (nats)."""

    ours: int
    theirs: int
    our_gap: float | None
    their_gap: float | None


@dataclass
class Tally:
    """Counts over all prompts."""

    positions: int = 0
    equal: int = 0
    near_ties: int = 0
    disputed: int = 0
    divergences: int = 0
    floor_near_ties: int = 0
    floor_divergences: int = 0
    length_mismatches: int = 0
    prompts_identical: int = 0
    free_running: int = 0
    free_running_identical: int = 0
    widest_tie_nats: float = 0.0


def run(ctx: Context) -> Outcome:
    """Every prompt of the set."""
    prompts = read_prompts(ctx.text(ctx.parameters["prompts"]))[: ctx.parameters.get("max_prompts")]
    if not prompts:
        return Outcome("skip", Reason.NOTHING_COMPARED, "the prompt set is empty")
    tally, variants = Tally(), []
    with ctx.evidence("greedy_reference.jsonl") as evidence:
        for number, (name, text) in enumerate(prompts):
            free = number < ctx.parameters["free_running_prompts"]
            variants.append(_prompt(ctx, name, text, tally, evidence, free=free))
    return _outcome(tally, tuple(variants), ctx.parameters["max_disputed_ratio"])


def read_prompts(data: bytes) -> list[tuple[str, str]]:
    """``(name, text)`` of a prompt set: a JSON object with ``prompts: [{name, text}]``."""
    return [(item["name"], item["text"]) for item in json.loads(data)["prompts"]]


def _prompt(
    ctx: Context, name: str, text: str, tally: Tally, evidence: EvidenceWriter, *, free: bool
) -> Variant:
    ids = ctx.target.prompt(text)
    tokens = ctx.parameters["tokens"]
    if not ids or len(ids) + tokens > ctx.context_tokens:
        detail = f"prompt {name}: {len(ids)} + {tokens} tokens do not fit a context of {ctx.context_tokens}"
        raise stop("skip", Reason.PARAMETERS_UNSUITABLE, detail)
    reference = ctx.reference(ctx.parameters["reference"])
    theirs = [(pick, row.copy()) for pick, row in reference.greedy_rows(ids, tokens)]
    picks = [pick for pick, _ in theirs]
    whole = all(np.isfinite(row).all() and int(row.argmax()) == pick for pick, row in theirs)
    if len(picks) != tokens or not whole:
        raise stop("error", Reason.REFERENCE_FAILED, f"prompt {name}: the reference's answer is incomplete")
    forced = ids + picks[:-1]
    positions = range(len(ids) - 1, len(forced))
    ours = (row for _, row in ctx.target.rows(forced, positions, ctx.setting))
    again = (row for _, row in reference.rows(forced, positions))
    found, kinds = [], []
    for row, (pick, their_row), second in zip(ours, theirs, again, strict=False):
        found.append(compare(row, pick, their_row))
        kinds.append(_judge(ctx, tally, row, found[-1], their_row, second))
    _count(tally, found, kinds, tokens)
    record: dict[str, Any] = {"prompt": name, "prompt_ids": ids, "reference_ids": picks}
    if free:
        freely = ctx.target.greedy(ids, tokens, ctx.setting, stop=False)
        tally.free_running += 1
        tally.free_running_identical += freely == picks
        record["our_free_running_ids"] = freely
    record["differences"] = [
        {"position": at, "kind": kind, **vars(pick)}
        for at, (pick, kind) in enumerate(zip(found, kinds, strict=True))
        if kind != EQUAL
    ]
    evidence.write(record)
    bad = REAL in kinds or len(kinds) != tokens
    return Variant(f"prompt={name}", "fail" if bad else "pass", Reason.PICKS_DIFFER if bad else None)


def _judge(
    ctx: Context, tally: Tally, ours: FloatArray, pick: Pick, generated: FloatArray, forced: FloatArray
) -> str:
    """The kind of a position. ``forced`` is the reference's second evaluation: whole, not token by token.

    It gives the floor, the reference against itself, and says where the reference takes both sides.
    """
    band = ctx.parameters["tie_band_nats"]
    floor = kind_of(compare(forced, pick.theirs, generated), band)
    tally.floor_near_ties += floor == NEAR_TIE
    tally.floor_divergences += floor == REAL
    kind = kind_of(pick, band)
    if kind == REAL and ctx.parameters["max_disputed_ratio"] > 0 and pick.our_gap is not None:
        other = compare(ours, int(np.argmax(forced)), forced)
        if other.theirs != pick.theirs and kind_of(other, band) != REAL:
            return DISPUTED
    return kind


def compare(ours: FloatArray, theirs: int, their_row: FloatArray) -> Pick:
    """Both picks and both gaps. A gap that is no finite number was not measured."""
    if ours.shape != their_row.shape:
        raise stop("fail", Reason.PICKS_DIFFER, f"{ours.size} logits a position, not {their_row.size}")
    pick = int(np.argmax(ours))
    return Pick(pick, theirs, _gap(ours, pick, theirs), _gap(their_row, theirs, pick))


def _gap(row: FloatArray, own: int, other: int) -> float | None:
    """``log p(own) - log p(other)``: the normaliser cancels."""
    gap = float(row[own]) - float(row[other])
    return gap if np.isfinite(gap) and np.isfinite(row[own]) else None


def kind_of(pick: Pick, band: float) -> str:
    """Equal, a near-tie (both gaps measured and within the band), or real."""
    if pick.our_gap is None or pick.their_gap is None:
        return REAL
    if pick.ours == pick.theirs:
        return EQUAL
    return NEAR_TIE if 0 <= pick.our_gap <= band and 0 <= pick.their_gap <= band else REAL


def _count(tally: Tally, found: Sequence[Pick], kinds: Sequence[str], tokens: int) -> None:
    tally.positions += len(kinds)
    tally.equal += kinds.count(EQUAL)
    tally.near_ties += kinds.count(NEAR_TIE)
    tally.disputed += kinds.count(DISPUTED)
    tally.length_mismatches += len(kinds) != tokens
    tally.divergences += kinds.count(REAL) + (len(kinds) != tokens)
    tally.prompts_identical += kinds.count(EQUAL) == tokens
    for pick, kind in zip(found, kinds, strict=True):
        if kind == NEAR_TIE and pick.our_gap is not None and pick.their_gap is not None:
            tally.widest_tie_nats = max(tally.widest_tie_nats, pick.our_gap, pick.their_gap)


def _outcome(tally: Tally, variants: tuple[Variant, ...], max_disputed: float) -> Outcome:
    measurements: dict[str, Number | str | None] = {"prompts": len(variants), **vars(tally)}
    if tally.positions == 0 and not tally.length_mismatches:
        return Outcome("skip", Reason.NOTHING_COMPARED, "no position was compared", measurements)
    ratio = tally.disputed / max(tally.positions, 1)
    measurements["disputed_ratio"] = ratio
    limits: dict[str, Number] = {"divergences_max": 0, "disputed_ratio_max": max_disputed}
    if tally.divergences:
        detail = f"{tally.divergences} of {tally.positions} picks differ for real"
        return Outcome("fail", Reason.PICKS_DIFFER, detail, measurements, limits, variants)
    if ratio > max_disputed:
        detail = f"{tally.disputed} of {tally.positions} picks are disputed by the reference itself"
        return Outcome("fail", Reason.DISPUTED_ABOVE_CAP, detail, measurements, limits, variants)
    return Outcome("pass", None, "", measurements, limits, variants)
