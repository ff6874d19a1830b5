"""The gate: read the sidecar beside a model, and resolve what it says about this file and this run.

A sidecar is ``<model>.envelope.json``: looked for beside the path as given, then beside the target
of a symbolic link. ``resolve`` returns a Standing or raises RefusedError; it reads no weight. The
default fails open on doubt (``indeterminate`` says why, and loads), ``Policy(require="certified")``
fails closed. Rules: docs/envelope.md. Unknown keys are ignored unless named in ``critical``.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

from engine import canonical
from engine.errors import FileError, RefusedError, UsageError
from engine.hashing import ChangedError, file_sha256
from engine.text import printable
from engine.verdict import OUTCOMES, RULE, VERDICTS, Judged, not_met, verdict_v1

SCHEMA = "gaugeblock.envelope/1"
SUFFIX = ".envelope.json"
MAX_BYTES = 1 << 20
CRITICAL = frozenset(
    {"artifacts", "model", "contracts", "scope", "not_measured", "checks", "verdict", "verdict_rule"}
)
"""Keys that this reader acts on; any other name in ``critical`` is unknown to it."""

State = Literal["certified", "outside-envelope", "experimental", "indeterminate", "unclassified"]
_HASH = re.compile(r"[0-9a-f]{64}")


class GateReason(StrEnum):
    """Why a sidecar resolved as it did. Documented in docs/reasons.md."""

    APPLIES = "receipt_applies"
    ABSENT = "sidecar_absent"
    UNREADABLE = "sidecar_unreadable"
    NOT_REGULAR = "sidecar_not_regular"
    TOO_LARGE = "sidecar_too_large"
    MALFORMED = "sidecar_malformed"
    SCHEMA = "schema_unknown"
    CRITICAL = "critical_unknown"
    FIELD = "field_invalid"
    BODY = "body_sha256_differs"
    ARTIFACTS = "artifacts_differ"
    HASH = "artifact_sha256_differs"
    CHANGED = "artifact_changed"
    ARCHITECTURE = "architecture_differs"
    NUMERICS = "numerics_differs"
    TOKENIZER = "tokenizer_differs"
    TEMPLATE = "template_differs"
    BACKEND = "backend_not_measured"
    ACTIVATIONS = "activations_differ"
    KV = "kv_differs"
    CONTEXT = "context_longer"
    RULE = "verdict_rule_unknown"
    VALUE = "enum_unknown"
    VERDICT = "verdict_differs"
    FIGURES = "figures_differ"


class Configuration(Protocol):
    """The part of a RuntimeConfig that a receipt binds."""

    @property
    def activations(self) -> str: ...
    @property
    def kv(self) -> str: ...
    @property
    def context_tokens(self) -> int: ...


@dataclass(frozen=True)
class Policy:
    """What the caller asks of the gate.

    ``require="certified"`` refuses everything else; ``trust`` then holds the SHA-256 of the sidecar
    files that may be believed (empty: any). ``force`` loads a model that was measured to be outside.
    """

    require: Literal["certified"] | None = None
    trust: frozenset[str] = frozenset()
    force: bool = False

    def __post_init__(self) -> None:
        if self.require not in (None, "certified"):
            raise UsageError(f"require takes 'certified', not {self.require!r}")
        object.__setattr__(self, "trust", frozenset(item.lower() for item in self.trust))
        for item in self.trust:
            if not _HASH.fullmatch(item):
                raise UsageError(
                    f"trust (--trust-envelope) takes the 64 hex digits of a SHA-256, not {item!r}"
                )
        if self.trust and self.require is None:
            raise UsageError("trust (--trust-envelope) has no effect without require (--require certified)")
        if self.force and self.require is not None:
            raise UsageError("force (--force-uncertified) contradicts require (--require certified)")


@dataclass(frozen=True)
class Standing:
    """What the gate found out about a model.

    ``detail`` is one printable sentence that names both sides of a difference; ``warning`` is set
    where a person must see something on stderr. ``measurements`` are the figures of failed checks.
    """

    state: State
    reason: GateReason
    detail: str
    sidecar: str | None = None
    sidecar_sha256: str | None = None
    artifact_sha256: str | None = None
    warning: str | None = None
    failed: tuple[str, ...] = ()
    measurements: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The JSON form, for ``info --json`` and the like; the sidecar by its name only."""
        return {
            "state": self.state,
            "reason": str(self.reason),
            "detail": self.detail,
            "sidecar": Path(self.sidecar).name if self.sidecar else None,
            "sidecar_sha256": self.sidecar_sha256,
            "artifact_sha256": self.artifact_sha256,
            "failed": list(self.failed),
        }


class Doubt(Exception):
    """The receipt cannot be applied; becomes ``indeterminate``."""

    def __init__(self, reason: GateReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Check:
    """One check of a receipt."""

    id: str
    outcome: str
    waived: bool
    reason: str | None
    measurements: Mapping[str, Any]
    thresholds: Mapping[str, Any]

    def figures(self) -> str:
        """The figures that broke a threshold, else all that have one, else all; printable."""
        broken = [text for name in self.thresholds if (text := self._figure(name, only_broken=True))]
        known = [text for name in self.thresholds if (text := self._figure(name, only_broken=False))]
        plain = [f"{printable(key)} {_number(value)}" for key, value in self.measurements.items()]
        return ", ".join((broken or known or plain)[:6]) or "no figure recorded"

    def _figure(self, name: str, *, only_broken: bool) -> str | None:
        base, _, side = name.rpartition("_")
        limit, value = self.thresholds[name], self.measurements.get(base)
        if side not in ("max", "min") or isinstance(value, (str, bool)) or value is None:
            return None
        broken = value > limit if side == "max" else value < limit
        if only_broken and not broken:
            return None
        sign = {("max", True): ">", ("max", False): "<=", ("min", True): "<", ("min", False): ">="}[
            side, broken
        ]
        return f"{printable(base)} {_number(value)} {sign} {_number(limit)} ({printable(name)})"


@dataclass(frozen=True)
class Receipt:
    """The part of a sidecar that the gate uses, with every type checked."""

    sha256: str
    bytes: int
    artifacts: int
    model_id: str
    architecture: str
    contracts: Mapping[str, str]
    backends: tuple[str, ...]
    activations: str
    kv: str
    context_tokens_max: int
    not_measured: tuple[str, ...]
    checks: tuple[Check, ...]
    verdict: str
    verdict_rule: str
    document: Mapping[str, Any]


def sidecar_candidates(path: str | os.PathLike[str]) -> list[Path]:
    """Where a sidecar of ``path`` may lie: beside it as given, then beside its symlink target."""
    given = Path(os.fspath(path))
    target = Path(os.path.realpath(given))
    names = [given.with_name(given.name + SUFFIX), target.with_name(target.name + SUFFIX)]
    return list(dict.fromkeys(names))


def read_sidecar(path: str | os.PathLike[str]) -> tuple[Path, bytes] | None:
    """Return the sidecar of a model and its bytes, or None where there is none.

    Raises Doubt where a sidecar is present and cannot be read.
    """
    for candidate in sidecar_candidates(path):
        data = read_regular(candidate)
        if data is not None:
            return candidate, data
    return None


def read_regular(path: Path) -> bytes | None:
    """Bytes of a regular file of at most MAX_BYTES; None where nothing has that name."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG) and not _dangling(path):
            return None
        if error.errno == errno.ENXIO:  # a socket
            raise Doubt(GateReason.NOT_REGULAR, "the sidecar is not a regular file") from None
        raise Doubt(GateReason.UNREADABLE, f"the sidecar cannot be read: {error.strerror}") from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise Doubt(GateReason.NOT_REGULAR, "the sidecar is not a regular file")
        data = b""
        while len(data) <= MAX_BYTES and (chunk := os.read(fd, MAX_BYTES + 1 - len(data))):
            data += chunk
    except OSError as error:
        raise Doubt(GateReason.UNREADABLE, f"the sidecar cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)
    if len(data) > MAX_BYTES:
        raise Doubt(GateReason.TOO_LARGE, f"the sidecar is larger than {MAX_BYTES} bytes")
    return data


def _dangling(path: Path) -> bool:
    """Whether the name exists as a symbolic link to nothing: present, though not readable."""
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.lstat(path).st_mode)
    return False


def resolve(
    path: str | os.PathLike[str],
    fd: int,
    *,
    config: Configuration,
    contracts: Mapping[str, str],
    architecture: str | None = None,
    backend: str = "cpu",
    policy: Policy = Policy(),
) -> Standing:
    """Say what the sidecar of ``path`` means for the open file ``fd`` in this configuration.

    ``contracts`` holds this engine's revisions of numerics, tokenizer and template. The file is
    hashed only where a sidecar could apply or ``policy.require`` is set. Raises RefusedError for a
    measured failure without ``force``, and for anything but ``certified`` under ``require``.
    """
    standing = _examine(path, fd, config, contracts, architecture, backend, policy)
    if policy.require is not None:
        _enforce(standing, policy, Path(path).name)
        return standing
    if standing.state != "outside-envelope":
        return standing
    name = printable(Path(path).name)
    if not policy.force:
        raise RefusedError(
            f"{name}: refused: {standing.detail}. This was measured on exactly these bytes in this "
            f"configuration (sidecar {printable(Path(standing.sidecar or '').name)})",
            standing,
            "force",
        )
    warning = f"{name}: loaded under --force-uncertified although {standing.detail}"
    return Standing(**{**vars(standing), "warning": warning})


def _enforce(standing: Standing, policy: Policy, name: str) -> None:
    """Refuse what ``--require`` does not admit."""
    if standing.state != "certified":
        raise RefusedError(
            f"{printable(name)}: refused: a certified model is required, but the model is {standing.state}: "
            f"{standing.detail}",
            standing,
            "require",
        )
    if policy.trust and standing.sidecar_sha256 not in policy.trust:
        raise RefusedError(
            f"{printable(name)}: refused: the sidecar has SHA-256 {standing.sidecar_sha256}, which is not "
            "among those to trust",
            standing,
            "trust",
        )


def _examine(
    path: str | os.PathLike[str],
    fd: int,
    config: Configuration,
    contracts: Mapping[str, str],
    architecture: str | None,
    backend: str,
    policy: Policy,
) -> Standing:
    """Find, read, bind and judge the sidecar; policy only decides whether the hash cache is used."""
    sidecar: str | None = None
    sidecar_sha256: str | None = None
    try:
        found = read_sidecar(path)
        if found is None:
            return Standing("unclassified", GateReason.ABSENT, "no sidecar lies beside the model")
        sidecar, sidecar_sha256 = str(found[0]), hashlib.sha256(found[1]).hexdigest()
        receipt = parse(found[1])
        _bind(receipt, config, contracts, architecture, backend)
        actual = _bind_bytes(receipt, fd, cache=policy.require is None)
        return _judge(receipt, sidecar, sidecar_sha256, actual)
    except Doubt as doubt:
        detail = f"the sidecar cannot be applied: {doubt.detail}"
        if sidecar is None:
            detail = doubt.detail
        warning = f"{printable(Path(path).name)}: indeterminate: {detail}"
        return Standing("indeterminate", doubt.reason, detail, sidecar, sidecar_sha256, warning=warning)


def _judge(receipt: Receipt, sidecar: str, sidecar_sha256: str, actual: str) -> Standing:
    """The standing of a receipt that binds."""
    failed = tuple(check for check in receipt.checks if check.outcome == "fail" and not check.waived)
    if receipt.verdict == "outside-envelope":
        parts = [f"check '{printable(check.id)}' failed: {check.figures()}" for check in failed]
        detail = "; ".join(parts)
    elif receipt.verdict == "certified":
        detail = f"all required checks passed (rule {RULE}; self-asserted, not signed)"
    else:
        missing = [
            f"{printable(check.id)}: {check.outcome}" for check in receipt.checks if check.outcome != "pass"
        ]
        detail = f"measured, not certified ({', '.join(missing) or 'a required check is missing or waived'})"
    return Standing(
        receipt.verdict,  # type: ignore[arg-type]  # parse() admits only the known verdicts
        GateReason.APPLIES,
        detail,
        sidecar,
        sidecar_sha256,
        actual,
        failed=tuple(check.id for check in failed),
        measurements={check.id: check.measurements for check in failed},
    )


# ---- Binding ---------------------------------------------------------------------------------


def _bind(
    receipt: Receipt,
    config: Configuration,
    contracts: Mapping[str, str],
    architecture: str | None,
    backend: str,
) -> None:
    """Compare everything that a receipt binds except the bytes; names both sides."""
    if architecture is not None and receipt.architecture != architecture:
        raise _differs(GateReason.ARCHITECTURE, "architecture", receipt.architecture, architecture)
    for name, reason in (
        ("numerics", GateReason.NUMERICS),
        ("tokenizer", GateReason.TOKENIZER),
        ("template", GateReason.TEMPLATE),
    ):
        if receipt.contracts[name] != contracts[name]:
            raise _differs(reason, f"contract revision of {name}", receipt.contracts[name], contracts[name])
    if backend not in receipt.backends or f"backend={backend}" in receipt.not_measured:
        measured = ", ".join(
            item for item in receipt.backends if f"backend={item}" not in receipt.not_measured
        )
        raise _differs(GateReason.BACKEND, "backend", measured or "none measured", backend)
    if receipt.activations != config.activations:
        raise _differs(GateReason.ACTIVATIONS, "activations", receipt.activations, config.activations)
    if receipt.kv != config.kv:
        raise _differs(GateReason.KV, "kv", receipt.kv, config.kv)
    if config.context_tokens > receipt.context_tokens_max:
        raise _differs(
            GateReason.CONTEXT, "context_tokens", f"up to {receipt.context_tokens_max}", config.context_tokens
        )


def _bind_bytes(receipt: Receipt, fd: int, *, cache: bool) -> str:
    """Compare size, then hash; returns the actual SHA-256."""
    if receipt.artifacts != 1:
        raise Doubt(
            GateReason.ARTIFACTS,
            f"the receipt is about {receipt.artifacts} files, this model is one file",
        )
    try:
        size = os.fstat(fd).st_size
        if size != receipt.bytes:
            raise _differs(GateReason.HASH, "bytes", receipt.bytes, size)
        actual = file_sha256(fd, cache=cache)
    except ChangedError as error:
        raise Doubt(GateReason.CHANGED, str(error)) from None
    except OSError as error:
        raise FileError(f"the model file cannot be read: {error.strerror}") from error
    if actual != receipt.sha256:
        raise _differs(GateReason.HASH, "sha256", receipt.sha256, actual)
    return actual


def _differs(reason: GateReason, what: str, receipt: object, here: object) -> Doubt:
    return Doubt(reason, f"{what}: the receipt has {printable(receipt)}, this run has {printable(here)}")


# ---- Reading ---------------------------------------------------------------------------------


def parse(data: bytes) -> Receipt:
    """Turn the bytes of a sidecar into a Receipt whose stated verdict equals the recomputed one.

    Raises Doubt, which ``resolve`` turns into ``indeterminate``.
    """
    try:
        document = canonical.loads(data, max_bytes=MAX_BYTES)
    except canonical.StrictJSONError as error:
        raise Doubt(GateReason.MALFORMED, f"not strict JSON: {printable(error)}") from None
    if not isinstance(document, dict):
        raise Doubt(GateReason.MALFORMED, "the document is not an object")
    if document.get("schema") != SCHEMA:
        found = printable(repr(document.get("schema")), 60)
        raise Doubt(GateReason.SCHEMA, f"schema: the receipt has {found}, this engine reads '{SCHEMA}'")
    for name in _list(document, "critical", str):
        if name not in CRITICAL:
            raise Doubt(GateReason.CRITICAL, f"critical names '{printable(name)}', unknown to this engine")
    body = _get(document, "body", dict)
    stated, actual = _hash(document, "body_sha256"), canonical.digest(body)
    if stated != actual:
        raise Doubt(GateReason.BODY, f"body_sha256: stated {stated}, computed {actual}")
    receipt = _receipt(body, document)
    _check_verdict(receipt)
    return receipt


def _receipt(body: dict[str, Any], document: dict[str, Any]) -> Receipt:
    artifacts = _list(body, "artifacts", dict)
    if not artifacts:
        raise Doubt(GateReason.FIELD, "artifacts is empty")
    for item in artifacts:
        _hash(item, "sha256")
        _get(item, "bytes", int)
    scope, model, contracts = (_get(body, name, dict) for name in ("scope", "model", "contracts"))
    return Receipt(
        sha256=artifacts[0]["sha256"],
        bytes=artifacts[0]["bytes"],
        artifacts=len(artifacts),
        model_id=_get(model, "id", str),
        architecture=_get(model, "architecture", str),
        contracts={name: _get(contracts, name, str) for name in ("numerics", "tokenizer", "template")},
        backends=tuple(_list(scope, "backends", str)),
        activations=_get(scope, "activations", str),
        kv=_get(scope, "kv", str),
        context_tokens_max=_get(scope, "context_tokens_max", int),
        not_measured=tuple(_list(body, "not_measured", str)),
        checks=tuple(_check(item) for item in _list(body, "checks", dict)),
        verdict=_get(body, "verdict", str),
        verdict_rule=_get(body, "verdict_rule", str),
        document=document,
    )


def _check(item: dict[str, Any]) -> Check:
    name, outcome = _get(item, "id", str), _get(item, "outcome", str)
    if outcome not in OUTCOMES:
        raise Doubt(
            GateReason.VALUE, f"check '{printable(name)}' has the unknown outcome '{printable(outcome)}'"
        )
    measurements, thresholds = _get(item, "measurements", dict), _get(item, "thresholds", dict)
    for key, value in measurements.items():
        if value is not None and not isinstance(value, (int, float, str)):
            raise Doubt(GateReason.FIELD, f"measurement '{printable(key)}' is not a number or a string")
    for key, value in thresholds.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Doubt(GateReason.FIELD, f"threshold '{printable(key)}' is not a number")
    missed = not_met(measurements, thresholds) if outcome == "pass" else ()
    if missed:
        names = ", ".join(printable(key) for key in missed[:6])
        raise Doubt(
            GateReason.FIGURES,
            f"check '{printable(name)}' is stated to pass, its figures do not meet {names}",
        )
    reason = item.get("reason")
    return Check(
        name,
        outcome,
        _get(item, "waived", bool),
        reason if isinstance(reason, str) else None,
        measurements,
        thresholds,
    )


def _check_verdict(receipt: Receipt) -> None:
    """Refuse an unknown rule or verdict, and one that the checks do not yield."""
    if receipt.verdict_rule != RULE:
        raise _differs(GateReason.RULE, "verdict_rule", receipt.verdict_rule, RULE)
    if receipt.verdict not in VERDICTS:
        raise Doubt(GateReason.VALUE, f"unknown verdict '{printable(receipt.verdict)}'")
    try:
        actual = verdict_v1(Judged(check.id, check.outcome, check.waived) for check in receipt.checks)
    except ValueError as error:
        raise Doubt(GateReason.FIELD, printable(error)) from None
    if receipt.verdict != actual:
        raise Doubt(
            GateReason.VERDICT, f"verdict: the receipt states {receipt.verdict}, its checks yield {actual}"
        )


def _get(item: Mapping[str, Any], name: str, kind: type) -> Any:
    value: Any = item.get(name)
    wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    if wrong or (kind is int and value < 0):
        shown = "missing" if name not in item else f"{printable(repr(value), 40)}"
        raise Doubt(GateReason.FIELD, f"'{name}' must be {_KINDS[kind]}, and is {shown}")
    return value


def _list(item: Mapping[str, Any], name: str, kind: type) -> Sequence[Any]:
    values = _get(item, name, list)
    for value in values:
        if not isinstance(value, kind):
            raise Doubt(GateReason.FIELD, f"'{name}' must hold only {_KINDS[kind]}s")
    return list(values)


def _hash(item: Mapping[str, Any], name: str) -> str:
    value = str(_get(item, name, str))
    if not _HASH.fullmatch(value):
        raise Doubt(
            GateReason.FIELD,
            f"'{name}' must be 64 lower-case hex digits, and is {printable(repr(value), 80)}",
        )
    return value


_KINDS = {str: "a string", int: "an integer", dict: "an object", list: "a list", bool: "true or false"}


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else printable(value)
