"""Recompute the logits digest of a receipt on this machine, and say whether the receipt holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from certify.envelope import EnvelopeError, sha256_of
from engine import Model, Policy, RuntimeConfig, native
from engine import envelope as gate
from engine.contracts import contracts
from engine.digest import logits_digest
from engine.text import printable


@dataclass(frozen=True)
class Replay:
    """What a replay found. ``computed`` is None where the digest could not be compared at all."""

    holds: bool
    detail: str
    stated: str | None
    computed: str | None
    verdict: str
    kernel_set: str

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {"schema": "gaugeblock.replay/1", **vars(self)}


def replay(sidecar: Path, model: Path, *, threads: int | None = None) -> Replay:
    """Replay a sidecar on a model file. Raises EnvelopeError where the sidecar cannot be read."""
    receipt = _receipt(sidecar)
    body = receipt.document["body"]
    kernels = native.build().kernel_set
    actual = sha256_of(model)
    if (difference := _difference(receipt, actual)) is not None:
        return Replay(False, difference, _stated(body), None, receipt.verdict, kernels)
    computed = _compute(model, receipt, body["digest"], threads)
    stated = body["digest"]["sha256"]
    same = computed == stated
    detail = "this machine computes the same bits" if same else "this machine computes other bits"
    return Replay(same, detail, stated, computed, receipt.verdict, kernels)


def _receipt(sidecar: Path) -> gate.Receipt:
    try:
        data = gate.read_regular(sidecar)
        if data is None:
            raise EnvelopeError(f"{printable(sidecar)}: not there")
        return gate.parse(data)
    except gate.Doubt as doubt:
        raise EnvelopeError(f"{printable(sidecar)}: {doubt.detail}") from None


def _stated(body: Mapping[str, Any]) -> str | None:
    digest = body.get("digest")
    value = digest.get("sha256") if isinstance(digest, dict) else None
    return value if isinstance(value, str) else None


def _difference(receipt: gate.Receipt, actual: str) -> str | None:
    """Why the digest cannot be compared, naming both sides; None where it can."""
    if actual != receipt.sha256:
        return f"the receipt is about sha256 {receipt.sha256}, the file has {actual}"
    here = contracts()["numerics"]
    if receipt.contracts["numerics"] != here:
        stated = printable(receipt.contracts["numerics"])
        return f"the receipt was measured under numerics {stated}, this engine computes {here}"
    digest = receipt.document["body"].get("digest")
    if digest is None:
        return "the receipt holds no digest, so there is nothing to replay"
    if not _well_formed(digest):
        return "the digest of the receipt is malformed, or of another algorithm than gblogits/1"
    return None


def _well_formed(digest: Any) -> bool:
    if not isinstance(digest, dict) or digest.get("algorithm") != "gblogits/1":
        return False
    ids, positions = _indices(digest.get("prompt_ids")), _indices(digest.get("positions"))
    ascending = all(a < b for a, b in pairwise(positions))
    inside = bool(ids and positions) and positions[-1] < len(ids)
    return ascending and inside and _stated({"digest": digest}) is not None


def _indices(value: Any) -> list[int]:
    """A list of integers of zero and more; empty for anything else."""
    if not isinstance(value, list) or any(type(item) is not int or item < 0 for item in value):
        return []
    return value


def _compute(model: Path, receipt: gate.Receipt, digest: Mapping[str, Any], threads: int | None) -> str:
    """The digest over the rows of the stated positions, in the configuration of the receipt."""
    config = RuntimeConfig(
        activations=receipt.activations,
        kv=receipt.kv,
        context_tokens=max(receipt.context_tokens_max, len(digest["prompt_ids"])),
    )
    # The gate is told to let it pass: replaying is how a measured failure is confirmed, too.
    with (
        Model.open(model, config=config, policy=Policy(force=True)) as opened,
        opened.session(threads=threads) as session,
    ):
        rows = session.eval(digest["prompt_ids"], want="all")[digest["positions"]]
        return logits_digest(rows, activations=config.activations, kv=config.kv)
