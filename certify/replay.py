"""Recompute the logits digest of a receipt on this machine, and say whether the receipt holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from certify.envelope import EnvelopeError, sha256_of
from engine import Entry, Model, Policy, RuntimeConfig, native
from engine import envelope as gate
from engine.contracts import contracts
from engine.digest import LogitsDigest
from engine.text import printable

ROWS = 64


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
    actual, size = sha256_of(model), model.stat().st_size
    stated = _stated(body)
    computed, difference = None, _difference(receipt, actual, size)
    if difference is None:
        computed, difference = _compute(model, receipt, threads)
    if difference is not None:
        return Replay(False, difference, stated, None, receipt.verdict, kernels)
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


def _difference(receipt: gate.Receipt, actual: str, size: int) -> str | None:
    """Why the digest cannot be compared, naming both sides; None where it can."""
    if actual != receipt.sha256:
        return f"the receipt is about sha256 {receipt.sha256}, the file has {actual}"
    here = contracts()["numerics"]
    if receipt.contracts["numerics"] != here:
        stated = printable(receipt.contracts["numerics"])
        return f"the receipt was measured under numerics {stated}, this engine computes {here}"
    if receipt.artifacts != 1 or receipt.bytes != size:
        stated = f"{receipt.artifacts} files, the first of {receipt.bytes} bytes"
        return f"the receipt is about {stated}; this is one file of {size} bytes"
    if "cpu" not in receipt.backends:
        return (
            f"the receipt was measured on {printable(', '.join(receipt.backends)) or 'nothing'}, not on cpu"
        )
    digest = receipt.document["body"].get("digest")
    if digest is None:
        return "the receipt holds no digest, so there is nothing to replay"
    if not _well_formed(digest):
        return "the digest of the receipt is malformed, or of another algorithm than gblogits/1"
    if (tokens := len(digest["prompt_ids"])) > receipt.context_tokens_max:
        limit = receipt.context_tokens_max
        return f"the digest is of {tokens} tokens, the receipt covers contexts of up to {limit}"
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


def _compute(model: Path, receipt: gate.Receipt, threads: int | None) -> tuple[str | None, str | None]:
    """Digest over the rows of the stated positions in the receipt's configuration; or why there is none."""
    digest = receipt.document["body"]["digest"]
    ids, wanted = digest["prompt_ids"], frozenset(digest["positions"])
    config = RuntimeConfig(
        activations=receipt.activations, kv=receipt.kv, context_tokens=receipt.context_tokens_max
    )
    # The gate is told to let it pass: replaying is how a measured failure is confirmed, too.
    with Model.open(model, config=config, policy=Policy(force=True)) as opened:
        info = opened.info
        here = {"architecture": info.architecture, "vocabulary": info.vocab}
        stated = {"architecture": receipt.architecture, "vocabulary": digest.get("vocab")}
        for name, value in here.items():
            if stated[name] != value:
                return None, f"{name}: the receipt has {printable(stated[name])}, the file has {value}"
        computed = LogitsDigest(len(wanted), info.vocab, activations=config.activations, kv=config.kv)
        with opened.session(threads=threads) as session:
            for first in range(0, len(ids), ROWS):  # the stated rows alone, a few at a time
                span = range(first, min(first + ROWS, len(ids)))
                entries = [Entry(ids[i], i, want="logits" if i in wanted else "none") for i in span]
                computed.update(session.step(entries))
        return computed.hexdigest(), None
