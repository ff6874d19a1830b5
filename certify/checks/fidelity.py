"""How far the next-token distributions are from the reference's on the same file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from certify.reasons import Reason
from certify.references import EvalOptions, FloatArray, Reference
from certify.targets import Context, EvidenceWriter, stop
from certify.types import Number, Outcome, Variant

REQUIREMENT = (
    "The mean KL divergence KLD(reference || ours) over the full vocabulary MUST be at most the greater of "
    "kld_mean_nats_max and floor_factor times the reference's own floor, and our pick MUST be within "
    "margin_band_nats of the reference's best in margin_top1_ratio_min of the positions; "
    "each side compared with itself MUST be at zero first."
)
VERSION = 1
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "against": {"type": "string", "default": "llama.cpp"},
        "corpus": {"type": "string", "default": "prose"},
        "positions": {"type": "integer", "minimum": 1, "maximum": 100000, "default": 400},
        "kld_mean_nats_max": {"type": "number", "exclusiveMinimum": 0, "default": 0.01},
        "floor_factor": {
            "type": "number",
            "minimum": 0,
            "maximum": 10,
            "default": 0,
            "description": "The bar is max(kld_mean_nats_max, floor_factor x floor); 0: no such allowance.",
        },
        "margin_band_nats": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
        "margin_top1_ratio_min": {"type": "number", "minimum": 0, "maximum": 1, "default": 1.0},
        "parent_kld_mean_nats_max": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "A bar for KLD(parent || ours); the model then needs derivation.parent.",
        },
    },
}
ZERO_POSITIONS = 32
ZERO_NATS = 1e-6
FLOOR = "flash_attention=off"
Float64 = NDArray[np.float64]


@dataclass
class Distance:
    """Running comparison of one side with the reference."""

    band: float
    klds: list[float] = field(default_factory=list)
    same: int = 0
    within: int = 0

    def add(self, reference: Float64, other: Float64) -> None:
        """Add one position; both arguments are log-probabilities [vocab]."""
        self.klds.append(kld(reference, other))
        pick, best = int(other.argmax()), int(reference.argmax())
        self.same += pick == best
        self.within += float(reference[best] - reference[pick]) <= self.band

    @property
    def mean(self) -> float:
        """Mean divergence in nats."""
        return math.fsum(self.klds) / len(self.klds)

    def measurements(self, prefix: str) -> dict[str, Number]:
        """Figures of this side."""
        n = len(self.klds)
        return {
            f"{prefix}kld_mean_nats": self.mean,
            f"{prefix}kld_max_nats": max(self.klds),
            f"{prefix}top1_ratio": self.same / n,
            f"{prefix}margin_top1_ratio": self.within / n,
        }


def log_probabilities(row: FloatArray) -> Float64:
    """Natural log-probabilities in float64. ValueError where a logit is not finite."""
    wide = row.astype(np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("a logit is a NaN or an infinity")
    wide -= wide.max()
    return wide - math.log(float(np.exp(wide).sum()))


def kld(reference: Float64, other: Float64) -> float:
    """``KLD(reference || other) = Σ p_reference · (log p_reference - log p_other)``, in nats."""
    return float((np.exp(reference) * (reference - other)).sum())


def run(ctx: Context) -> Outcome:
    """Zero points, then the reference, its floor, ours and the parent side by side."""
    ids = _ids(ctx)
    zero = _zero_points(ctx, ids[:ZERO_POSITIONS])
    band = ctx.parameters["margin_band_nats"]
    ours, floor = Distance(band), Distance(band)
    with ctx.evidence("fidelity.jsonl") as evidence:
        _measure(ctx, ids, ours, floor, evidence)
    if not ours.klds:
        return Outcome("skip", Reason.NOTHING_COMPARED, "no position was compared")
    measurements: dict[str, Number | str | None] = {
        "kld_direction": f"KLD({ctx.parameters['against']} || ours)",
        "corpus": ctx.parameters["corpus"],
        "corpus_sha256": ctx.job.texts[ctx.parameters["corpus"]].sha256,
        "positions": len(ours.klds),
        **ours.measurements(""),
        "floor": FLOOR,
        **floor.measurements("floor_"),
        **zero,
    }
    allowed = max(ctx.parameters["kld_mean_nats_max"], ctx.parameters["floor_factor"] * floor.mean)
    thresholds: dict[str, Number] = {
        "kld_mean_nats_max": allowed,
        "margin_top1_ratio_min": ctx.parameters["margin_top1_ratio_min"],
    }
    variants = [_against_parent(ctx, ids, measurements, thresholds)]
    return _outcome(measurements, thresholds, tuple(item for item in variants if item is not None))


def _ids(ctx: Context) -> list[int]:
    n = ctx.parameters["positions"]
    text = ctx.text(ctx.parameters["corpus"]).decode("utf-8")
    ids = ctx.target.prompt(text[: 12 * n + 200])[:n]
    if len(ids) < n or n > ctx.context_tokens:
        detail = f"{n} positions are asked for: the corpus gives {len(ids)}, the context {ctx.context_tokens}"
        raise stop("skip", Reason.PARAMETERS_UNSUITABLE, detail)
    return ids


def _ours(ctx: Context, ids: list[int], batch: int = 64) -> Iterator[Float64]:
    rows = ctx.target.rows(ids, None, replace(ctx.setting, batch=batch))
    return _complete(rows, len(ids), "fail", Reason.NONFINITE, Reason.ENGINE_FAILED)


def _theirs(reference: Reference, ids: list[int], options: EvalOptions) -> Iterator[Float64]:
    rows = reference.rows(ids, None, options)
    return _complete(rows, len(ids), "error", Reason.REFERENCE_FAILED, Reason.REFERENCE_FAILED)


def _complete(
    rows: Iterator[tuple[int, FloatArray]],
    n: int,
    outcome: Literal["fail", "error"],
    not_finite: Reason,
    incomplete: Reason,
) -> Iterator[Float64]:
    """Log-probabilities of every position, in order; anything else ends the check by whose it was."""
    expected = 0
    for position, row in rows:
        if position != expected or expected == n:
            raise stop(outcome, incomplete, f"a row of position {position} came in place of {expected}")
        try:
            yield log_probabilities(row)
        except ValueError as error:
            raise stop(outcome, not_finite, f"position {position}: {error}") from None
        expected += 1
    if expected != n:
        raise stop(outcome, incomplete, f"{expected} rows came, {n} were asked for")


def _zero_points(ctx: Context, ids: list[int]) -> dict[str, Number]:
    """Each side against itself. A side that is not at zero measures nothing."""
    reference = ctx.reference(ctx.parameters["against"])
    sides = {
        "zero_point_kld_nats": (_ours(ctx, ids), _ours(ctx, ids, batch=7)),
        "reference_zero_point_kld_nats": (
            _theirs(reference, ids, EvalOptions()),
            _theirs(ctx.reference(ctx.parameters["against"], instance="floor"), ids, EvalOptions()),
        ),
    }
    found: dict[str, Number] = {}
    for name, (first, second) in sides.items():
        worst = max((abs(kld(p, q)) for p, q in zip(first, second, strict=False)), default=math.inf)
        if not worst <= ZERO_NATS:
            detail = f"{name}: {worst:g} nats between two runs of one side"
            if name.startswith("reference"):
                raise stop("error", Reason.REFERENCE_FAILED, detail)
            raise stop("fail", Reason.ZERO_POINT_FAILED, detail)
        found[name] = worst
    return found


def _measure(ctx: Context, ids: list[int], ours: Distance, floor: Distance, evidence: EvidenceWriter) -> None:
    """All sides in step, one position at a time: nothing is kept but the figures."""
    name = ctx.parameters["against"]
    main = _theirs(ctx.reference(name), ids, EvalOptions())
    other = _theirs(ctx.reference(name, instance="floor"), ids, EvalOptions(flash_attention=False))
    for position, (theirs, again, mine) in enumerate(zip(main, other, _ours(ctx, ids), strict=True)):
        if theirs.shape != mine.shape:
            detail = f"{mine.size} logits a position, the reference has {theirs.size}"
            raise stop("fail", Reason.THRESHOLD_MISSED, detail)
        ours.add(theirs, mine)
        floor.add(theirs, again)
        best, pick = int(theirs.argmax()), int(mine.argmax())
        evidence.write(
            {
                "position": position,
                "token": ids[position],
                "kld_nats": ours.klds[-1],
                "floor_kld_nats": floor.klds[-1],
                "our_pick": pick,
                "reference_pick": best,
                "pick_gap_nats": float(theirs[best] - theirs[pick]),
            }
        )


def _against_parent(
    ctx: Context,
    ids: list[int],
    measurements: dict[str, Number | str | None],
    thresholds: dict[str, Number],
) -> Variant | None:
    """KLD(parent || ours), the parent computed by the reference. None where no bar asks for it."""
    if "parent_kld_mean_nats_max" not in ctx.parameters and ctx.job.parent is None:
        return None
    if ctx.job.parent is None:
        return Variant("against=parent", "skip", Reason.ARTIFACT_MISSING)
    parent = ctx.reference(ctx.parameters["against"], instance="parent", artifact=ctx.job.parent)
    distance = Distance(ctx.parameters["margin_band_nats"])
    for theirs, mine in zip(_theirs(parent, ids, EvalOptions()), _ours(ctx, ids), strict=True):
        if theirs.shape != mine.shape:
            return Variant("against=parent", "skip", Reason.PARAMETERS_UNSUITABLE)
        distance.add(theirs, mine)
    measurements |= distance.measurements("parent_")
    bar = ctx.parameters.get("parent_kld_mean_nats_max")
    if bar is None:
        return None
    thresholds["parent_kld_mean_nats_max"] = bar
    good = distance.mean <= bar
    return Variant("against=parent", "pass" if good else "fail", None if good else Reason.THRESHOLD_MISSED)


def _outcome(
    measurements: dict[str, Number | str | None],
    thresholds: dict[str, Number],
    variants: tuple[Variant, ...],
) -> Outcome:
    missed = []
    for name, limit in thresholds.items():
        base, _, side = name.rpartition("_")
        value = measurements[base]
        good = isinstance(value, (int, float)) and (value <= limit if side == "max" else value >= limit)
        if not good:
            missed.append(f"{base} {value:.6g} is past {name} {limit:.6g}")
    if missed:
        reason = Reason.THRESHOLD_MISSED
        return Outcome("fail", reason, "; ".join(missed), measurements, thresholds, variants)
    if any(item.outcome == "skip" for item in variants):
        detail = "the parent was asked for and could not be measured"
        return Outcome("skip", Reason.ARTIFACT_MISSING, detail, measurements, thresholds, variants)
    return Outcome("pass", None, "", measurements, thresholds, variants)
