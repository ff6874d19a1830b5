"""The pinned bytes load and compute."""

from __future__ import annotations

import numpy as np

from certify.reasons import Reason
from certify.targets import Context
from certify.types import Number, Outcome

REQUIREMENT = (
    "A file that hashes to its pin MUST load as the architecture that the manifest names, "
    "and MUST give finite logits that depend on the token; any other file MUST be refused by name."
)
VERSION = 1
PARAMETERS = {"type": "object", "additionalProperties": False, "properties": {}}


def run(ctx: Context) -> Outcome:
    """Hash what was opened, load it, compute two rows."""
    artifact = ctx.job.artifacts[0]
    actual = ctx.target.sha256()
    if actual != artifact.sha256:
        detail = f"{artifact.name} has the hash {actual}, the manifest pins {artifact.sha256}"
        return Outcome("fail", Reason.ARTIFACT_DIFFERS, detail)
    facts = ctx.target.describe()
    architecture = facts.pop("architecture")
    if architecture != ctx.job.architecture:
        detail = f"the file is of architecture {architecture}, the manifest says {ctx.job.architecture}"
        return Outcome("fail", Reason.ARCHITECTURE_DIFFERS, detail)
    measurements: dict[str, Number | str | None] = {**facts, "bytes": artifact.bytes}
    rows = [row.copy() for _, row in ctx.target.rows(_probe(ctx), None, ctx.setting)]
    finite = sum(bool(np.isfinite(row).all()) for row in rows)
    measurements |= {"rows": len(rows), "finite_rows": finite}
    if finite < len(rows):
        return Outcome("fail", Reason.NONFINITE, "a logit is a NaN or an infinity", measurements)
    if len(rows) < 2 or any(row.min() == row.max() for row in rows) or np.array_equal(rows[0], rows[-1]):
        detail = "the logits do not depend on their token"
        return Outcome("fail", Reason.LOGITS_CONSTANT, detail, measurements)
    return Outcome("pass", measurements=measurements)


def _probe(ctx: Context) -> list[int]:
    """A few ids; at least two, and not all the same."""
    ids = ctx.target.prompt("One, two, three")[:8]
    return ids if len(set(ids)) > 1 else [0, 1]
