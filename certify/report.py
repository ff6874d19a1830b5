"""Build, write, read and judge reports.

``build`` turns a manifest and the results of its checks into the document of
``certify/schemas/report.json``: waivers applied, verdicts by rule v1, the exit code by its
precedence. Everything that may differ between two runs on one machine stays outside ``body``.
Documents are validated on writing (no key beyond the schema) and on reading (digest, verdicts and
exit code recomputed).
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

from certify import reasons, schemas
from certify.manifest import Manifest, ModelEntry, Waiver, dotted
from certify.reasons import CertifyExit
from certify.types import CheckResult, Outcome, Variant
from engine import canonical
from engine.streams import replaceable
from engine.text import printable
from engine.verdict import RULE, Judged, not_met, verdict_v1

SCHEMA = "gaugeblock.report/1"
MAX_BYTES = 64 << 20
WaiverState = Literal["applied", "insufficient", "not_needed", "not_reached", "expired"]


class ReportError(Exception):
    """A report that cannot be built, written or read; the text says what and where."""


@dataclass(frozen=True)
class ArtifactResult:
    """What was found of one artifact; None: not there, or not hashed."""

    name: str
    expected_sha256: str
    actual_sha256: str | None
    bytes: int | None


@dataclass(frozen=True)
class ModelResult:
    """One model of the manifest with the result of every check that it declares."""

    entry: ModelEntry
    artifacts: tuple[ArtifactResult, ...]
    checks: tuple[CheckResult, ...]


@dataclass(frozen=True)
class EngineRecord:
    """The engine that was measured. ``contracts``: numerics, tokenizer, template."""

    version: str
    commit: str | None
    dirty: bool | None
    library_sha256: str
    compiler: str
    flags: str
    contracts: Mapping[str, str]


@dataclass(frozen=True)
class ReferenceRecord:
    """A reference as it answered, and the revision that the manifest pins."""

    name: str
    provider: str
    package_version: str | None
    revision: str | None
    pinned: str | None
    cpu_features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host:
    """The machine, without its name."""

    os: str
    arch: str
    cpu: str | None
    cores: int


@dataclass(frozen=True)
class RunRecord:
    """What stays outside the digest. Times are UTC with ``Z``."""

    id: str
    started: str
    finished: str
    resumed: bool
    host: Host
    kernel_set: str
    harness_version: str
    python: str
    extra: Mapping[str, Any] = field(default_factory=dict)


# ---- Building --------------------------------------------------------------------------------


def build(
    manifest: Manifest,
    models: Sequence[ModelResult],
    *,
    engine: EngineRecord,
    references: Sequence[ReferenceRecord],
    run: RunRecord,
    today: date,
    allow_incomplete: bool = False,
) -> dict[str, Any]:
    """Return the report of a finished run.

    Every model of the manifest and every check that it declares must have exactly one result (a check
    that did not run is a ``skip`` with a reason). ``today`` is the UTC day on which the run started.
    """
    _check_complete(manifest, models)
    documents = [_model_document(model, today) for model in models]
    pins = [asdict(item) | {"cpu_features": list(item.cpu_features)} for item in references]
    summary = summarise(documents)
    body = {
        "manifest": {"name": manifest.name, "sha256": manifest.sha256},
        "engine": asdict(engine) | {"contracts": dict(engine.contracts), "flags": scrub(engine.flags)},
        "references": sorted(pins, key=lambda item: str(item["name"])),
        "models": documents,
        "summary": summary,
        "exit_code": int(exit_code(documents, pins, allow_incomplete=allow_incomplete)),
    }
    body = _scrubbed(body)
    report = {
        "schema": SCHEMA,
        "complete": True,
        "body_sha256": canonical.digest(body),
        "body": body,
        "run": _run_document(run, models),
    }
    _validate(report, strict=True)
    return report


def _check_complete(manifest: Manifest, models: Sequence[ModelResult]) -> None:
    """Refuse a report that leaves something out: omission is never a result."""
    if [model.entry.id for model in models] != [entry.id for entry in manifest.models]:
        raise ReportError("the models of the report are not those of the manifest, in its order")
    for model in models:
        declared = [check.id for check in model.entry.checks]
        found = [check.id for check in model.checks]
        if sorted(found) != sorted(declared):
            raise ReportError(f"{model.entry.id}: declared are {declared}, results are of {found}")
        for check in model.checks:
            _check_outcome(model.entry.id, check)


def _check_outcome(model_id: str, check: CheckResult) -> None:
    outcome = check.outcome
    found: list[tuple[str, Outcome | Variant]] = [(check.id, outcome)]
    found += [(f"{check.id}[{item.name}]", item) for item in outcome.variants]
    for name, item in found:
        if (item.outcome == "pass") != (item.reason is None):
            raise ReportError(f"{model_id}/{name}: a {item.outcome} with the reason {item.reason!r}")
        if item.reason is not None and not reasons.known(item.reason):
            raise ReportError(
                f"{model_id}/{name}: unknown reason {item.reason!r}; add it to certify/reasons.py"
            )
    if outcome.outcome == "pass" and any(item.outcome in ("fail", "error") for _, item in found):
        raise ReportError(f"{model_id}/{check.id}: passes although a variant did not")
    if outcome.outcome == "pass" and (missed := not_met(outcome.measurements, outcome.thresholds)):
        raise ReportError(f"{model_id}/{check.id}: passes although {', '.join(missed)} is not met")


def _model_document(model: ModelResult, today: date) -> dict[str, Any]:
    entry = model.entry
    order = {check.id: index for index, check in enumerate(entry.checks)}
    results = sorted(model.checks, key=lambda check: order[check.id])
    waivers = [(waiver, _waiver_state(waiver, results, entry.waivers, today)) for waiver in entry.waivers]
    checks = [_check_document(check, waivers) for check in results]
    return {
        "id": entry.id,
        "architecture": entry.architecture,
        "license": entry.license,
        "derivation": {
            "parent_sha256": entry.derivation.parent_sha256,
            "method": entry.derivation.method,
        },
        "artifacts": [asdict(item) for item in model.artifacts],
        "config": asdict(entry.config),
        "checks": checks,
        "waivers": [
            {"check": waiver.check, **_waiver_document(waiver), "state": state} for waiver, state in waivers
        ],
        "verdict": _verdict(checks, model.artifacts),
        "verdict_rule": RULE,
    }


def _check_document(check: CheckResult, waivers: Iterable[tuple[Waiver, WaiverState]]) -> dict[str, Any]:
    outcome = check.outcome
    applied = [waiver for waiver, state in waivers if waiver.check == check.id and state == "applied"]
    parameters = dict(check.parameters)
    return {
        "id": check.id,
        "version": check.version,
        "requirement": check.requirement,
        "outcome": outcome.outcome,
        "reason": str(outcome.reason) if outcome.reason is not None else None,
        "waiver": _waiver_document(applied[0]) if applied else None,
        "parameters": parameters,
        "parameters_sha256": canonical.digest(parameters),
        "measurements": dict(outcome.measurements),
        "thresholds": dict(outcome.thresholds),
        "variants": [
            {"name": item.name, "outcome": item.outcome, "reason": item.reason} for item in outcome.variants
        ],
        "evidence": [asdict(item) for item in outcome.evidence],
        "digest": _digest_document(outcome),
    }


def _digest_document(outcome: Outcome) -> dict[str, Any] | None:
    digest = outcome.digest
    if digest is None:
        return None
    return {
        "algorithm": digest.algorithm,
        "prompt_ids": list(digest.prompt_ids),
        "positions": list(digest.positions),
        "vocab": digest.vocab,
        "sha256": digest.sha256,
    }


def _waiver_document(waiver: Waiver) -> dict[str, Any]:
    return {
        "measurement": waiver.measurement,
        "reason": waiver.reason,
        "owner": waiver.owner,
        "issue": waiver.issue,
        "until": waiver.until.isoformat(),
    }


def _verdict(checks: Sequence[Mapping[str, Any]], artifacts: Iterable[ArtifactResult]) -> str:
    judged = (Judged(item["id"], item["outcome"], item["waiver"] is not None) for item in checks)
    return verdict_v1(judged, bound=all(item.actual_sha256 == item.expected_sha256 for item in artifacts))


def _run_document(run: RunRecord, models: Sequence[ModelResult]) -> dict[str, Any]:
    results = [(f"{model.entry.id}/{check.id}", check) for model in models for check in model.checks]
    document = {
        "id": run.id,
        "started": run.started,
        "finished": run.finished,
        "resumed": run.resumed,
        "host": asdict(run.host),
        "kernel_set": run.kernel_set,
        "harness_version": run.harness_version,
        "python": run.python,
        "elapsed_s": {name: round(check.elapsed_s, 3) for name, check in results},
        "details": {name: scrub(check.outcome.detail) for name, check in results if check.outcome.detail},
    }
    return document | dict(run.extra)


# ---- Waivers ---------------------------------------------------------------------------------


def violated(measurements: Mapping[str, Any], thresholds: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the measurements that are past their ``_max`` or ``_min``; one not measured is not past."""
    names = []
    for name, limit in thresholds.items():
        base, _, side = name.rpartition("_")
        value = measurements.get(base)
        if isinstance(value, (int, float)) and (
            (side == "max" and not value <= limit) or (side == "min" and not value >= limit)
        ):
            names.append(base)
    return tuple(dict.fromkeys(names))


def _waiver_state(
    waiver: Waiver, results: Sequence[CheckResult], waivers: Sequence[Waiver], today: date
) -> WaiverState:
    """What became of one waiver; ``waivers`` are all of the model's."""
    if waiver.expired(today):
        return "expired"
    outcome = next(check.outcome for check in results if check.id == waiver.check)
    if outcome.outcome in ("skip", "error"):
        return "not_reached"
    if outcome.outcome == "pass":
        return "not_needed"
    valid = [item for item in waivers if item.check == waiver.check and not item.expired(today)]
    if waiver.measurement is None:
        return "applied"
    past = violated(outcome.measurements, outcome.thresholds)
    if waiver.measurement not in past:
        return "not_needed"
    named = {item.measurement for item in valid}
    whole = None in named
    by_figures = set(past) <= named and not any(item.outcome == "fail" for item in outcome.variants)
    return "applied" if whole or by_figures else "insufficient"


# ---- Summary and exit code -------------------------------------------------------------------


def summarise(models: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Counts of outcomes; ``fail`` without the waived ones."""
    counts = Counter(
        "waived" if check["outcome"] == "fail" and check["waiver"] is not None else check["outcome"]
        for model in models
        for check in model["checks"]
    )
    return {name: counts[name] for name in ("pass", "fail", "skip", "error", "waived")}


def exit_code(
    models: Sequence[Mapping[str, Any]],
    references: Sequence[Mapping[str, Any]],
    *,
    allow_incomplete: bool = False,
) -> CertifyExit:
    """The exit code of a run that was not interrupted: 4 before 1 before 3 before 0."""
    summary = summarise(models)
    bad_waiver = any(
        item["state"] in ("expired", "not_needed") for model in models for item in model.get("waivers", ())
    )
    bad_bytes = any(
        item["actual_sha256"] not in (None, item["expected_sha256"])
        for model in models
        for item in model["artifacts"]
    )
    bad_reference = any(item["pinned"] not in (None, item["revision"]) for item in references)
    if summary["error"]:
        return CertifyExit.HARNESS
    if summary["fail"] or bad_waiver or bad_bytes or bad_reference:
        return CertifyExit.FAILED
    if summary["skip"] and not allow_incomplete:
        return CertifyExit.INCOMPLETE
    return CertifyExit.DONE


# ---- Privacy ---------------------------------------------------------------------------------

_ABSOLUTE = re.compile(r"(?<![\w:/.<])(?:/[\w.@+~-]+)+/([\w.@+~-]+)")


def scrub(text: str) -> str:
    """Replace absolute paths by ``…/name``, and the host's name."""
    shorter = _ABSOLUTE.sub(r"…/\1", text)
    host = socket.gethostname()
    return re.sub(rf"\b{re.escape(host)}\b", "<host>", shorter) if len(host) > 3 else shorter


def _scrubbed(value: Any) -> Any:
    """Apply the path rule to every string of a body but parameters, which have a digest of their own."""
    if isinstance(value, str):
        return _ABSOLUTE.sub(r"…/\1", value)
    if isinstance(value, dict):
        return {key: item if key == "parameters" else _scrubbed(item) for key, item in value.items()}
    return [_scrubbed(item) for item in value] if isinstance(value, list) else value


# ---- Files -----------------------------------------------------------------------------------


def _validate(document: Any, *, strict: bool) -> None:
    problems = [
        f"{dotted(tuple(error.absolute_path)) or 'report'}: {printable(error.message, 200)}"
        for error in schemas.errors("report", document, strict=strict)
    ]
    if problems:
        raise ReportError("not a gaugeblock.report/1: " + "; ".join(problems[:5]))


def write_document(document: Mapping[str, Any], path: Path, *, force: bool = False) -> None:
    """Write indented JSON by temporary file and rename; an existing file needs ``force``."""
    if path.exists() and not force:
        raise ReportError(f"{printable(path)} exists; add --force to replace it")
    if not replaceable(path):
        raise ReportError(f"{printable(path)} is not a regular file")
    canonical.dumps(document)  # refuses what could not be read again
    data = to_bytes(document)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """Indented JSON for files: readable, in the order of writing."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def write(report: Mapping[str, Any], path: Path, *, force: bool = False) -> None:
    """Validate strictly and write a report."""
    _validate(report, strict=True)
    write_document(report, path, force=force)


def read(path: Path) -> dict[str, Any]:
    """Read a report and recompute what it states; raises ReportError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ReportError(f"{printable(path)}: cannot be read: {error.strerror}") from None
    try:
        return parse(data)
    except ReportError as error:
        raise ReportError(f"{printable(path)}: {error}") from None


def parse(data: bytes) -> dict[str, Any]:
    """Read the bytes of a report: schema, digest, verdicts, summary and exit code must agree."""
    try:
        document = canonical.loads(data, max_bytes=MAX_BYTES)
    except canonical.StrictJSONError as error:
        raise ReportError(f"not strict JSON: {printable(error)}") from None
    _validate(document, strict=False)
    body = document["body"]
    actual = canonical.digest(body)
    if actual != document["body_sha256"]:
        raise ReportError(f"body_sha256 states {document['body_sha256']}, the body has {actual}")
    unknown = [name for name in document.get("critical", ()) if name not in _READ]
    if unknown:
        raise ReportError(f"critical names '{printable(unknown[0])}', unknown to this version")
    ids = [model["id"] for model in body["models"]]
    if len(set(ids)) < len(ids):
        raise ReportError("a model occurs twice")
    for model in body["models"]:
        _refuse_contradiction(model, document["run"]["started"][:10])
    if summarise(body["models"]) != {name: body["summary"][name] for name in summarise([])}:
        raise ReportError("the summary is not that of the checks")
    codes = {
        int(exit_code(body["models"], body["references"], allow_incomplete=flag)) for flag in (False, True)
    }
    if body["exit_code"] not in codes:
        raise ReportError(f"exit_code states {body['exit_code']}, the checks yield {min(codes)}")
    return dict(document)


_READ = ("manifest", "engine", "references", "models", "summary", "exit_code")
"""Parts of a body that this version acts on; any other name in ``critical`` is unknown to it."""


def _refuse_contradiction(model: Mapping[str, Any], day: str) -> None:
    """Recompute what a model's checks state; ``day`` is the one on which the run started."""
    name = printable(model["id"])
    for check in model["checks"]:
        fault = _contradiction(check, model, day)
        if fault is not None:
            raise ReportError(f"{name}/{printable(check['id'])}: {fault}")
    artifacts = [
        ArtifactResult(item["name"], item["expected_sha256"], item["actual_sha256"], item["bytes"])
        for item in model["artifacts"]
    ]
    try:
        verdict = _verdict(model["checks"], artifacts)
    except ValueError as error:
        raise ReportError(f"{name}: {printable(error)}") from None
    if verdict != model["verdict"]:
        raise ReportError(f"{name}: states {model['verdict']}, its checks yield {verdict}")


def _contradiction(check: Mapping[str, Any], model: Mapping[str, Any], day: str) -> str | None:
    """What in the record of a check cannot be true beside the rest of it."""
    if canonical.digest(check["parameters"]) != check["parameters_sha256"]:
        return "parameters_sha256 is not the digest of the parameters"
    if check["outcome"] == "pass":
        missed = not_met(check["measurements"], check["thresholds"])
        if missed:
            return f"states a pass, its figures do not meet {printable(', '.join(missed))}"
        if any(item["outcome"] in ("fail", "error") for item in check["variants"]):
            return "states a pass although a variant did not"
    waiver = check["waiver"]
    if waiver is None:
        return None
    if check["outcome"] != "fail":
        return f"a {check['outcome']} is said to be waived"
    if waiver["until"] < day:
        return f"its waiver had expired on {printable(waiver['until'])}, before the run of {printable(day)}"
    applied = {**waiver, "check": check["id"], "state": "applied"}
    if any(applied.items() <= item.items() for item in model.get("waivers", [applied])):
        return None
    return "its waiver is not among the model's that were applied"
