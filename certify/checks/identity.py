"""Logits are the same to the bit, however they are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from certify.reasons import Reason
from certify.targets import Context, Setting, stop
from certify.types import Digest, Number, Outcome, Variant
from engine.digest import LogitsDigest
from engine.errors import NonFiniteError

REQUIREMENT = (
    "The logits digest MUST be the same for every number of threads, every batch size, every repetition, "
    "every way of continuing from kept state, and beside other sequences; a backend that did not run "
    "MUST be listed as not run."
)
VERSION = 1
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "threads": {
            "type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 256},
            "minItems": 1, "default": [1, 2, 3],
        },
        "batches": {
            "type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 4096},
            "minItems": 1, "default": [1, 7, 64, 512],
        },
        "backends": {"type": "array", "items": {"type": "string"}, "minItems": 1, "default": ["cpu"]},
        "activations": {
            "type": "array", "items": {"enum": ["wide", "int8", "f32"]}, "minItems": 1,
            "description": "The modes to check; by default the configured one.",
        },
        "corpus": {"type": "string", "default": "prose"},
        "tokens": {"type": "integer", "minimum": 2, "maximum": 100000, "default": 160,
                   "description": "Length of the prompt; more than 128 crosses a chunk of the attention."},
        "rows": {"type": "integer", "minimum": 2, "maximum": 100000, "default": 16,
                 "description": "Positions whose logits are hashed, evenly spread, first and last included."},
        "beside": {"type": "integer", "minimum": 1, "maximum": 64, "default": 2,
                   "description": "Other sequences in the same steps."},
    },
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """One way to compute, by name."""

    name: str
    setting: Setting


def run(ctx: Context) -> Outcome:
    """Digest of every way in every activation mode, against the first way's."""
    configured = str(ctx.job.config["activations"])
    modes: Sequence[str] = ctx.parameters.get("activations") or [configured]
    ids, positions = prompt(ctx)
    variants = list(_absent_backends(ctx))
    kept: Digest | None = None
    with ctx.evidence("identity.jsonl") as evidence:
        for mode in dict.fromkeys([*modes, configured]):
            found = _mode(ctx, ids, positions, mode, prefix=len(modes) > 1 or mode != configured)
            variants += found.variants
            evidence.write({"activations": mode, "digests": found.digests, "prompt_ids": list(ids)})
            if mode == configured:
                kept = Digest(tuple(ids), tuple(positions), ctx.target.vocab, found.baseline)
    ran = [item for item in variants if item.outcome != "skip"]
    different = sum(item.outcome == "fail" for item in ran)
    measurements: dict[str, Number | str | None] = {
        "tokens": len(ids),
        "positions": len(positions),
        "variants": len(ran),
        "variants_different": different,
        "variants_not_run": len(variants) - len(ran),
    }
    reason = Reason.DIGESTS_DIFFER if different else None
    names = ", ".join(item.name for item in ran if item.outcome == "fail")
    detail = f"other digests at {names}" if different else ""
    limits = {"variants_different_max": 0}
    outcome = "fail" if different else "pass"
    return Outcome(outcome, reason, detail, measurements, limits, tuple(variants), digest=kept)  # type: ignore[arg-type]


def prompt(ctx: Context) -> tuple[list[int], list[int]]:
    """The prompt's ids, and the positions whose rows are hashed."""
    wanted = ctx.parameters["tokens"]
    text = ctx.text(ctx.parameters["corpus"]).decode("utf-8")
    ids = ctx.target.prompt(text[: 12 * wanted + 200])[:wanted]
    if len(ids) < wanted or wanted > ctx.context_tokens:
        detail = (
            f"{wanted} tokens are asked for: the corpus gives {len(ids)}, the context {ctx.context_tokens}"
        )
        raise stop("skip", Reason.PARAMETERS_UNSUITABLE, detail)
    rows = min(ctx.parameters["rows"], wanted)
    return ids, sorted({round(i * (wanted - 1) / (rows - 1)) for i in range(rows)})


@dataclass(frozen=True)
class Mode:
    """What one activation mode gave."""

    baseline: str
    digests: dict[str, str]
    variants: list[Variant]


def _mode(ctx: Context, ids: Sequence[int], positions: Sequence[int], mode: str, *, prefix: bool) -> Mode:
    digests: dict[str, str] = {}
    variants: list[Variant] = []
    baseline = ""
    for way in ways(ctx, replace(ctx.setting, activations=mode), len(ids)):
        digests[way.name] = digest = _digest(ctx, ids, positions, way)
        baseline = baseline or digest
        name = f"activations={mode},{way.name}" if prefix else way.name
        same = digest == baseline
        variants.append(Variant(name, "pass" if same else "fail", None if same else Reason.DIGESTS_DIFFER))
    return Mode(baseline, digests, variants)


def ways(ctx: Context, base: Setting, tokens: int) -> Iterator[Way]:
    """Every way; the first is what the others are compared with. Batch 64 where nothing else is said."""
    threads: Sequence[int] = ctx.parameters["threads"]
    plain = replace(base, threads=threads[0], batch=64)
    cuts = tuple(sorted({1, tokens // 2, tokens - 1}))
    for count in threads:
        yield Way(f"threads={count}", replace(plain, threads=count))
    yield Way("repeat", plain)
    for batch in ctx.parameters["batches"]:
        yield Way(f"batch={batch}", replace(plain, threads=threads[-1], batch=batch))
    yield Way("continuation=session", replace(plain, cuts=cuts))
    yield Way("continuation=snapshot", replace(plain, cuts=cuts, via="snapshot"))
    yield Way("continuation=fork", replace(plain, cuts=cuts, via="fork"))
    yield Way(f"beside={ctx.parameters['beside']}", replace(plain, beside=ctx.parameters["beside"]))


def _digest(ctx: Context, ids: Sequence[int], positions: Sequence[int], way: Way) -> str:
    """The digest of one way; logits that are not finite, or the same everywhere, end the check."""
    setting = way.setting
    digest = LogitsDigest(len(positions), ctx.target.vocab, activations=setting.activations, kv=setting.kv)
    first: np.ndarray | None = None
    varied = False
    seen = []
    for position, row in ctx.target.rows(ids, positions, setting):
        seen.append(position)
        if first is None:
            first = row.copy()
        varied = varied or not np.array_equal(row, first)
        try:
            digest.update(row[None, :])
        except NonFiniteError as error:
            raise stop("fail", Reason.NONFINITE, f"{way.name}, position {position}: {error}") from None
    if seen != list(positions):
        raise stop("fail", Reason.DIGESTS_DIFFER, f"{way.name}: rows came for {len(seen)} other positions")
    if first is None or not varied or first.min() == first.max():
        raise stop("fail", Reason.LOGITS_CONSTANT, f"{way.name}: the logits are the same everywhere")
    return digest.hexdigest()


def _absent_backends(ctx: Context) -> Iterator[Variant]:
    """Backends that the manifest names and that cannot compute here."""
    present = ctx.target.backends()
    wanted: Sequence[str] = ctx.parameters["backends"]
    if not set(wanted) & set(present):
        raise stop("skip", Reason.NO_DEVICE, f"none of the backends {', '.join(wanted)} is on this machine")
    for name in wanted:
        if name not in present:
            yield Variant(f"backend={name}", "skip", Reason.NO_DEVICE)
