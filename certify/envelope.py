"""Write sidecars from a report: by the hash of the actual file, never by its name.

An envelope states nothing that the report does not: figures, outcomes and the verdict are copied,
the scope is what was measured. It is validated strictly, read back by the engine's own reader, and
written by temporary file and rename.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify import report as reports
from certify import schemas
from certify.manifest import dotted
from certify.reasons import Reason
from certify.report import ReportError
from engine import canonical
from engine import envelope as gate
from engine.hashing import ChangedError, file_sha256
from engine.text import printable

SCHEMA = gate.SCHEMA
ENGINE_NAME = "gaugeblock"


class EnvelopeError(Exception):
    """No envelope can be written; the text says why."""


class NotWritten(EnvelopeError):
    """There is an envelope, and its file cannot be written."""


@dataclass(frozen=True)
class Written:
    """One sidecar that was written; ``replaced`` is the verdict of the one about the same bytes before it."""

    model_id: str
    file: Path
    sidecar: Path
    sha256: str
    verdict: str
    replaced: str | None = None

    @property
    def warning(self) -> str | None:
        """What a person must know: a certified receipt of the same bytes gave way to a lesser one."""
        if self.replaced != "certified" or self.verdict == "certified":
            return None
        return (
            f"{printable(self.sidecar, None)}: the receipt that was replaced said {self.replaced}, this one "
            f"says {self.verdict}: run every check to certify the model again"
        )


def build(report: Mapping[str, Any], model_id: str, *, supersedes: str | None = None) -> dict[str, Any]:
    """The envelope of one model of a report. ``supersedes``: SHA-256 of the sidecar it replaces."""
    if not report["complete"]:
        raise EnvelopeError("the report is not complete: finish the run with `certify run --resume`")
    model = next((item for item in report["body"]["models"] if item["id"] == model_id), None)
    if model is None:
        raise EnvelopeError(f"the report has no model '{printable(model_id)}'")
    _refuse_unbound(model)
    body = _body(report, model)
    run = report["run"]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "critical": [],
        "body_sha256": canonical.digest(body),
        "body": body,
        "measured": {"date": run["finished"], "os": run["host"]["os"], "arch": run["host"]["arch"]},
        "supersedes": supersedes,
        "attestations": [],
    }
    _validate(document)
    return document


def _refuse_unbound(model: Mapping[str, Any]) -> None:
    """An envelope needs the actual bytes, the pinned references, and at least one check that ran."""
    for item in model["artifacts"]:
        if item["actual_sha256"] != item["expected_sha256"]:
            found = item["actual_sha256"] or "not hashed"
            raise EnvelopeError(
                f"{printable(model['id'])}: {printable(item['name'])} is pinned as {item['expected_sha256']} "
                f"and was {found}: nothing was measured on the pinned bytes"
            )
    for check in model["checks"]:
        if check["outcome"] == "fail" and check["reason"] == Reason.REFERENCE_REVISION:
            raise EnvelopeError(
                f"{printable(model['id'])}: {printable(check['id'])} met another reference than the pinned "
                "one: that says nothing about the model, and a receipt would have it refused"
            )
    if not any(check["outcome"] in ("pass", "fail") for check in model["checks"]):
        raise EnvelopeError(f"{printable(model['id'])}: no check ran, so there is nothing to state")


def _body(report: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    body, engine = report["body"], report["body"]["engine"]
    derivation = model.get("derivation") or {}
    return {
        "artifacts": [
            {"name": item["name"], "sha256": item["actual_sha256"], "bytes": item["bytes"]}
            for item in model["artifacts"]
        ],
        "model": {
            "id": model["id"],
            "architecture": model["architecture"],
            "parent_sha256": derivation.get("parent_sha256"),
            "derivation": derivation.get("method"),
        },
        "contracts": {name: engine["contracts"][name] for name in ("numerics", "tokenizer", "template")},
        "engine": {"name": ENGINE_NAME, "version": engine["version"], "commit": engine["commit"]},
        "scope": _scope(report, model),
        "not_measured": sorted(_not_measured(model)),
        "references": [{"name": item["name"], "revision": item["revision"]} for item in body["references"]],
        "checks": [_check(check) for check in model["checks"]],
        "digest": _digest(model),
        "verdict": model["verdict"],
        "verdict_rule": model["verdict_rule"],
        "manifest_sha256": body["manifest"]["sha256"],
        "report_body_sha256": report["body_sha256"],
    }


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": check["id"],
        "version": check["version"],
        "outcome": check["outcome"],
        "reason": check["reason"],
        "waived": check["waiver"] is not None,
        "measurements": check["measurements"],
        "thresholds": check["thresholds"],
    }


def _variants(model: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    """(value, outcome) of every variant named ``prefix=value``."""
    for check in model["checks"]:
        for item in check["variants"]:
            name, _, value = item["name"].partition("=")
            if name == prefix:
                yield value, item["outcome"]


def _not_measured(model: Mapping[str, Any]) -> set[str]:
    return {
        item["name"]
        for check in model["checks"]
        for item in check["variants"]
        if item["outcome"] in ("skip", "error")
    }


def _scope(report: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """The checks run on the CPU; any other backend or kernel set counts once a variant ran on it."""
    ran = ("pass", "fail")
    backends = {"cpu", *(name for name, outcome in _variants(model, "backend") if outcome in ran)}
    kernels = {report["run"]["kernel_set"]}
    kernels |= {name for name, outcome in _variants(model, "kernels") if outcome in ran}
    config = model["config"]
    return {
        "backends": sorted(backends),
        "kernel_sets": sorted(kernels),
        "activations": config["activations"],
        "kv": config["kv"],
        "context_tokens_max": config["context_tokens"],
    }


def _digest(model: Mapping[str, Any]) -> Any:
    found = [check["digest"] for check in model["checks"] if check.get("digest")]
    return found[0] if found else None


def _validate(document: Mapping[str, Any]) -> None:
    """Meet the published schema without a key too many, and satisfy the engine's own reader."""
    for error in schemas.errors("envelope", document, strict=True):
        where = dotted(tuple(error.absolute_path)) or "envelope"
        raise EnvelopeError(f"not a {SCHEMA}: {where}: {printable(error.message)}")
    data = reports.to_bytes(document)
    try:
        gate.parse(data)
    except gate.Doubt as doubt:
        raise EnvelopeError(f"the engine would not apply it: {doubt.detail}") from None


def write(
    report: Mapping[str, Any],
    files: Iterable[Path],
    *,
    out: Path | None = None,
    model_id: str | None = None,
    force: bool = False,
) -> list[Written]:
    """Write a sidecar for each file whose hash the report knows, beside it or into ``out``.

    ``model_id`` chooses where the report measured the same bytes in several configurations.
    Raises EnvelopeError before anything is written where a file has a hash that the report lacks.
    """
    planned: list[tuple[Mapping[str, Any], Path, Path, dict[str, Any]]] = []
    for file in files:
        model = _model_of(report, file, model_id)
        sidecar = sidecar_of(file, out)
        if any(other == sidecar for _, _, other, _ in planned):
            raise EnvelopeError(f"{printable(sidecar)} would be written twice")
        old = _existing(sidecar, force=force)
        planned.append((model, file, sidecar, build(report, model["id"], supersedes=old)))
    written = []
    for model, file, sidecar, document in planned:
        before = _verdict_of(sidecar, document["body"]["artifacts"][0]["sha256"])
        try:
            reports.write_document(document, sidecar, force=force)
        except ReportError as error:
            raise NotWritten(str(error)) from None
        except OSError as error:
            raise NotWritten(f"{printable(sidecar)}: cannot be written: {error.strerror}") from None
        digest = hashlib.sha256(reports.to_bytes(document)).hexdigest()
        written.append(Written(model["id"], file, sidecar, digest, model["verdict"], before))
    return written


def sidecar_of(file: Path, folder: Path | None = None) -> Path:
    """Where the sidecar of a model file lies: beside it, or in ``folder``."""
    return (folder or file.parent) / (file.name + gate.SUFFIX)


def _model_of(report: Mapping[str, Any], file: Path, model_id: str | None) -> Mapping[str, Any]:
    """The model of the report that was measured on these bytes; several files, or none: an error."""
    digest = sha256_of(file)
    found = [
        model
        for model in report["body"]["models"]
        if model_id in (None, model["id"])
        and any(item["actual_sha256"] == digest for item in model["artifacts"])
    ]
    if not found:
        raise EnvelopeError(
            f"{printable(file)}: SHA-256 {digest} is not in the report: it was not measured. "
            "Run `certify run` on a manifest that pins it"
        )
    if len(found) > 1:
        names = ", ".join(printable(model["id"]) for model in found)
        raise EnvelopeError(f"{printable(file)}: the report measured these bytes as {names}: add --model ID")
    if len(found[0]["artifacts"]) != 1:
        raise EnvelopeError(f"{printable(found[0]['id'])}: models of several files have no sidecar yet")
    return found[0]  # type: ignore[no-any-return]


def _existing(sidecar: Path, *, force: bool) -> str | None:
    """SHA-256 of the sidecar that would be replaced; an existing one needs ``force``."""
    if not os.path.lexists(sidecar):
        return None
    if not force:
        raise NotWritten(f"{printable(sidecar)} exists; add --force to replace it")
    try:
        return sha256_of(sidecar)
    except EnvelopeError as error:
        raise NotWritten(f"{error}; it cannot be replaced") from None


def _verdict_of(sidecar: Path, sha256: str) -> str | None:
    """What the sidecar that lies there says about these bytes; None where it says nothing of them."""
    try:
        data = gate.read_regular(sidecar)
        receipt = None if data is None else gate.parse(data)
    except gate.Doubt:
        return None
    return receipt.verdict if receipt is not None and receipt.sha256 == sha256 else None


def sha256_of(file: Path) -> str:
    """Hash a regular file without the cache; EnvelopeError where it cannot be read."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return file_sha256(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise EnvelopeError(f"{printable(file)}: cannot be read: {error.strerror}") from None
    except ChangedError as error:
        raise EnvelopeError(f"{printable(file)}: {error}") from None
