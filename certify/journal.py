"""The journal of a run: append-only, one fsynced line a finished check, so that a run can resume.

Every line is ``{"data": …, "sha256": digest of the canonical data}``. The first one is the *key*:
what the results depend on. A journal whose key differs belongs to another run and is refused. A last
line that was cut by a crash is dropped; damage anywhere else is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from certify.targets import ReferenceUse
from certify.types import CheckResult, Digest, Evidence, Outcome, Variant
from engine import canonical

SCHEMA = "gaugeblock.journal/1"
MAX_LINE_BYTES = 16 << 20


class JournalError(Exception):
    """The journal cannot be used; the text says what differs, and what to do."""


@dataclass(frozen=True)
class JobResult:
    """A finished check of a model, with the references that took part."""

    model: str
    result: CheckResult
    references: tuple[ReferenceUse, ...] = ()


def to_json(item: JobResult) -> dict[str, Any]:
    """Plain data of a result."""
    return {**asdict(item), "schema": SCHEMA}


def from_json(data: Mapping[str, Any]) -> JobResult:
    """The inverse of ``to_json``; KeyError or TypeError where ``data`` is something else."""
    result = data["result"]
    uses = tuple(
        ReferenceUse(**{**use, "cpu_features": tuple(use["cpu_features"])}) for use in data["references"]
    )
    check = CheckResult(**{**result, "outcome": outcome_from_json(result["outcome"])})
    return JobResult(data["model"], check, uses)


def use_from_json(data: Mapping[str, Any]) -> ReferenceUse:
    """A ReferenceUse from its plain data."""
    return ReferenceUse(**{**data, "cpu_features": tuple(data["cpu_features"])})


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    """An Outcome from its plain data."""
    digest = data["digest"]
    if digest is not None:
        digest = Digest(**{**digest, **{key: tuple(digest[key]) for key in ("prompt_ids", "positions")}})
    return Outcome(
        **{
            **data,
            "variants": tuple(Variant(**item) for item in data["variants"]),
            "evidence": tuple(Evidence(**item) for item in data["evidence"]),
            "digest": digest,
        }
    )


class Journal:
    """An open, locked journal. ``finished``: the results that it held by (model, check), errors excepted."""

    def __init__(self, path: Path, fd: int, finished: dict[tuple[str, str], JobResult]) -> None:
        self.path, self.finished, self._fd = path, finished, fd

    @classmethod
    def create(cls, path: Path, key: Mapping[str, Any]) -> Journal:
        """A new journal; one that stood there is replaced."""
        fd = _open_locked(path)
        try:
            os.ftruncate(fd, 0)
            _append(fd, {"schema": SCHEMA, "key": dict(key)})
            _sync_folder(path.parent)
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd, {})

    @classmethod
    def resume(cls, path: Path, key: Mapping[str, Any]) -> Journal:
        """Take up a journal. One that does not exist, or holds nothing whole, is begun anew."""
        if not path.exists():
            return cls.create(path, key)
        fd = _open_locked(path)
        try:
            lines, good = _read(fd)
            os.ftruncate(fd, good)
            if not lines:
                _append(fd, {"schema": SCHEMA, "key": dict(key)})
                return cls(path, fd, {})
            _refuse_other_key(path, lines[0], key)
            finished = {}
            for line in lines[1:]:
                item = from_json(line)
                finished[item.model, item.result.id] = item
            # An error measured nothing (a full disk, a crashed reference): it is tried again.
            finished = {key: item for key, item in finished.items() if item.result.outcome.outcome != "error"}
            return cls(path, fd, finished)
        except (KeyError, TypeError) as error:
            os.close(fd)
            raise JournalError(
                f"{path.name} holds a record of another shape ({error}): use --force"
            ) from None
        except BaseException:
            os.close(fd)
            raise

    def append(self, item: JobResult) -> None:
        """Record a finished check; on return it is on the disk."""
        _append(self._fd, to_json(item))
        self.finished[item.model, item.result.id] = item

    def close(self) -> None:
        """Close and unlock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise JournalError(f"{path.name} is not a regular file: remove it, or choose another --out")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise JournalError(
            f"another run is writing {path.name}: wait for it, or choose another --out"
        ) from None
    return fd


def _append(fd: int, data: Mapping[str, Any]) -> None:
    plain = json.loads(json.dumps(data, allow_nan=False))  # tuples become lists before they are hashed
    line = canonical.dumps({"data": plain, "sha256": canonical.digest(plain)}) + b"\n"
    view = memoryview(line)
    while view:
        view = view[os.write(fd, view) :]
    os.fsync(fd)


def _read(fd: int) -> tuple[list[dict[str, Any]], int]:
    """Whole lines, and the offset after the last of them."""
    data = b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
    lines: list[dict[str, Any]] = []
    offset = 0
    for raw in data.splitlines(keepends=True):
        line = _parse(raw)
        if line is None:
            if offset + len(raw) == len(data):
                break  # torn by a crash
            raise JournalError(f"the journal is damaged at byte {offset}: start anew with --force")
        lines.append(line)
        offset += len(raw)
    return lines, offset


def _parse(raw: bytes) -> dict[str, Any] | None:
    if not raw.endswith(b"\n") or len(raw) > MAX_LINE_BYTES:
        return None
    try:
        outer = canonical.loads(raw[:-1], max_bytes=MAX_LINE_BYTES)
        data = outer["data"]
        whole = canonical.digest(data) == outer["sha256"]
    except (ValueError, KeyError, TypeError):
        return None
    return data if whole and isinstance(data, dict) else None


def _refuse_other_key(path: Path, header: Mapping[str, Any], key: Mapping[str, Any]) -> None:
    if header.get("schema") != SCHEMA:
        raise JournalError(f"{path.name} is a journal of schema {header.get('schema')!r}, not {SCHEMA}")
    then, now = header["key"], json.loads(json.dumps(dict(key)))
    changed = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    if changed:
        raise JournalError(
            f"{path.name} belongs to another run: {', '.join(changed)} changed; "
            "start anew with --force, or resume with what it was begun with"
        )


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
