"""Runs checks, each in a process, a process group and a session of its own.

A check that hangs is killed with its whole group; one that floods its output is read and cut; one
that dies is judged by who was at work (``certify.phase``); one that leaves a process behind is
noticed and cleaned up after. None of them costs more than itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import io
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from certify import registry
from certify.journal import JobResult, Journal, outcome_from_json
from certify.phase import REFERENCE, SUBJECT, Phase
from certify.reasons import Reason
from certify.targets import MAX_EVIDENCE_BYTES, Job, ReferenceUse
from certify.types import CheckResult, Evidence, Outcome

MAX_OUTPUT_BYTES = 256 << 10
MAX_FLOOD_BYTES = 64 << 20
MAX_RESULT_BYTES = 8 << 20
GRACE_S = 0.3
PR_SET_CHILD_SUBREAPER = 36
MARK = "GAUGEBLOCK_CHECK"


@dataclass(frozen=True)
class Wiring:
    """Where the child finds its parts. Set by code (tests put fakes here), never by a manifest."""

    checks: str = registry.PACKAGE
    target: str = "certify.targets:engine_target"
    references: str = "certify.references.table:open_reference"


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit status (negative: signal), and what it sent."""

    status: int
    stopped_for: Reason | None
    phase: str
    result: bytes
    output: bytes
    left_behind: int


@dataclass
class Runner:
    """Runs jobs under ``out``: ``evidence/<model>/<check>/`` and ``logs/<model>.<check>.log``."""

    out: Path
    wiring: Wiring = field(default_factory=Wiring)

    def run_all(
        self,
        jobs: Sequence[Job],
        journal: Journal,
        *,
        fail_fast: bool = False,
        on_start: Callable[[Job], None] = lambda job: None,
        on_end: Callable[[JobResult, bool], None] = lambda item, resumed: None,
    ) -> list[JobResult]:
        """Run what the journal does not hold; ``on_end`` also hears of what it does, as resumed."""
        self._forget_attempts()
        results: list[JobResult] = []
        stopped = False
        for job in jobs:
            done = journal.finished.get((job.model, job.check))
            if done is not None:
                self._refuse_other_evidence(done)
            elif stopped:
                detail = "an earlier check failed and --fail-fast was given"
                item = JobResult(
                    job.model, self.result(job, Outcome("skip", Reason.NOT_REACHED, detail), 0.0)
                )
                results.append(item)
                on_end(item, False)
                continue
            else:
                on_start(job)
            item = done or self.run(job)
            if done is None:
                journal.append(item)
            results.append(item)
            on_end(item, done is not None)
            stopped = stopped or (fail_fast and item.result.outcome.outcome in ("fail", "error"))
        return results

    def run(self, job: Job) -> JobResult:
        """Run one job. Whatever the check does, this returns a result."""
        begin = time.monotonic()
        attempt = self.out / "evidence" / f".{job.model}.{job.check}.{secrets.token_hex(4)}"
        attempt.mkdir(parents=True)
        try:
            ended = supervise(job, self.wiring, attempt)
            outcome, uses = judge(job, ended)
            outcome = replace(outcome, evidence=self._keep(job, outcome.evidence, attempt))
        finally:
            shutil.rmtree(attempt, ignore_errors=True)
        self._log(job, ended.output)
        return JobResult(job.model, self.result(job, outcome, time.monotonic() - begin), uses)

    def result(self, job: Job, outcome: Outcome, elapsed_s: float) -> CheckResult:
        """The record of an outcome of ``job``."""
        check = registry.get(job.check, self.wiring.checks)
        return CheckResult(
            check.id, check.version, check.requirement, outcome, dict(job.parameters), elapsed_s
        )

    def _forget_attempts(self) -> None:
        """Remove what a run that was killed left of checks that had not ended."""
        for attempt in (self.out / "evidence").glob(".*"):
            shutil.rmtree(attempt, ignore_errors=True)

    def evidence_folder(self, model: str, check: str) -> Path:
        """Where the side files of a finished check lie."""
        return self.out / "evidence" / model / check

    def _keep(self, job: Job, listed: Sequence[Evidence], attempt: Path) -> tuple[Evidence, ...]:
        """Move the listed side files into place, hashed by us: the child's word is not enough."""
        folder = self.evidence_folder(job.model, job.check)
        shutil.rmtree(folder, ignore_errors=True)
        kept = []
        for item in listed:
            path = attempt / Path(item.name).name
            if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_EVIDENCE_BYTES:
                continue
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
            folder.mkdir(parents=True, exist_ok=True)
            path.rename(folder / path.name)
            kept.append(Evidence(path.name, digest, (folder / path.name).stat().st_size))
        return tuple(kept)

    def _refuse_other_evidence(self, item: JobResult) -> None:
        folder = self.evidence_folder(item.model, item.result.id)
        for record in item.result.outcome.evidence:
            try:
                actual = hashlib.sha256((folder / record.name).read_bytes()).hexdigest()
            except OSError:
                actual = "missing"
            if actual != record.sha256:
                raise EvidenceChanged(
                    f"evidence/{item.model}/{item.result.id}/{record.name} is not what the journal recorded: "
                    "start anew with --force"
                )

    def _log(self, job: Job, output: bytes) -> None:
        path = self.out / "logs" / f"{job.model}.{job.check}.log"
        path.unlink(missing_ok=True)
        if output:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(output)
            temporary.rename(path)


class EvidenceChanged(Exception):
    """A side file of a finished check differs from its record."""


def judge(job: Job, ended: Ended) -> tuple[Outcome, tuple[ReferenceUse, ...]]:
    """The outcome of a child that ended in any way."""
    if ended.stopped_for is not None:
        limit = f"{job.timeout_s:g} s" if ended.stopped_for == Reason.TIMEOUT else f"{MAX_FLOOD_BYTES} bytes"
        return _blame(ended.phase, ended.stopped_for, f"stopped at its limit of {limit}"), ()
    if ended.status < 0:
        name = _signal_name(-ended.status)
        if -ended.status == signal.SIGKILL:
            return Outcome("error", Reason.KILLED, "SIGKILL came from outside (out of memory?)"), ()
        return _blame(ended.phase, Reason.CRASHED, f"ended by {name}"), ()
    try:
        document = json.loads(ended.result)
        outcome = outcome_from_json(document["outcome"])
        uses = tuple(
            ReferenceUse(**{**use, "cpu_features": tuple(use["cpu_features"])})
            for use in document["references"]
        )
    except (ValueError, KeyError, TypeError):
        detail = f"ended with status {ended.status} and {len(ended.result)} bytes of result"
        return _blame(ended.phase, Reason.CRASHED, detail), ()
    if ended.left_behind and outcome.outcome in ("pass", "skip"):
        detail = f"{ended.left_behind} processes outlived the check and were killed"
        outcome = replace(outcome, outcome="error", reason=Reason.PROCESS_LEFT_BEHIND, detail=detail)
    return outcome, uses


def _blame(phase: str, reason: Reason, detail: str) -> Outcome:
    """Ours is a fail with its own reason; anyone else's an error."""
    if phase == SUBJECT:
        return Outcome("fail", reason, f"our engine was at work: {detail}")
    if phase == REFERENCE:
        return Outcome("error", Reason.REFERENCE_FAILED, f"the reference was at work: {detail}")
    return Outcome("error", Reason.HARNESS_FAILED, f"the harness was at work: {detail}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- One child ---------------------------------------------------------------------------------


def supervise(job: Job, wiring: Wiring, folder: Path) -> Ended:
    """Start the child, read what it writes, end it in time, and clean up behind it."""
    _adopt_orphans()
    mark = secrets.token_hex(16)
    before = set(_children())
    with contextlib.ExitStack() as stack:
        phase_file = stack.enter_context(tempfile.TemporaryFile())
        phase_file.write(b"\0")
        phase_file.flush()
        phase = Phase(phase_file.fileno())
        stack.callback(phase.close)
        (output_r, output_w), (result_r, result_w), (lifeline_r, _) = (_pipe(stack) for _ in range(3))
        theirs = (output_w, result_w, lifeline_r)
        fds = {
            "phase_fd": phase_file.fileno(),
            "result_fd": result_w.fileno(),
            "lifeline_fd": lifeline_r.fileno(),
        }
        order = {"job": asdict(job), "wiring": asdict(wiring), "folder": str(folder), **fds}
        process = subprocess.Popen(
            [sys.executable, "-m", "certify.child"],
            stdin=subprocess.PIPE,
            stdout=output_w,
            stderr=output_w,
            pass_fds=list(fds.values()),
            start_new_session=True,
            env=_environment(mark),
        )
        try:
            for end in theirs:
                end.close()
            _send_order(process, order)
            stopped_for, output, result = _attend(
                process, output_r.fileno(), result_r.fileno(), job.timeout_s
            )
        finally:
            left = _clean_up(process, mark, before)
        return Ended(process.returncode, stopped_for, phase.name, result, output, left)


def _pipe(stack: contextlib.ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """Both ends of a pipe, closed with ``stack`` unless before."""
    read, write = os.pipe()
    return stack.enter_context(io.FileIO(read, "r")), stack.enter_context(io.FileIO(write, "w"))


def _environment(mark: str) -> dict[str, str]:
    path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
    return {**os.environ, MARK: mark, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}


def _send_order(process: subprocess.Popen[bytes], order: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(order).encode())


class _Capped:
    """The head and the tail of a stream; the middle of a flood is dropped and counted."""

    def __init__(self, limit: int) -> None:
        self._head, self._tail, self._limit = bytearray(), bytearray(), limit // 2
        self.seen = 0

    def add(self, data: bytes) -> None:
        self.seen += len(data)
        room = self._limit - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[max(room, 0) :])[-self._limit :]

    def bytes(self) -> bytes:
        dropped = self.seen - len(self._head) - len(self._tail)
        note = f"\n[… {dropped} bytes dropped …]\n".encode() if dropped > 0 else b""
        return bytes(self._head) + note + bytes(self._tail)


def _attend(
    process: subprocess.Popen[bytes], output_fd: int, result_fd: int, timeout_s: float
) -> tuple[Reason | None, bytes, bytes]:
    """Read until the child has ended or its time is up."""
    deadline = time.monotonic() + timeout_s
    output, result = _Capped(MAX_OUTPUT_BYTES), bytearray()
    with selectors.DefaultSelector() as selector, _exit_event(process) as exit_fd:
        for fd in (output_fd, result_fd, *exit_fd):
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ)
        while process.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0 or output.seen > MAX_FLOOD_BYTES:
                return Reason.TIMEOUT if left <= 0 else Reason.FLOODED, output.bytes(), b""
            for key, _ in selector.select(min(left, 1.0) if exit_fd else min(left, 0.05)):
                if key.fd not in exit_fd and not _pump(key.fd, output_fd, output, result):
                    selector.unregister(key.fd)
    for fd in (result_fd, output_fd):  # what was written before the end
        for _ in range(64):
            if not _pump(fd, output_fd, output, result):
                break
    return None, output.bytes(), bytes(result)


def _pump(fd: int, output_fd: int, output: _Capped, result: bytearray) -> bool:
    """Read once; False where nothing more can be read now or ever."""
    try:
        data = os.read(fd, 1 << 18)
    except BlockingIOError:
        return False
    if fd == output_fd:
        output.add(data)
    elif len(result) <= MAX_RESULT_BYTES:
        result += data
    return bool(data)


@contextlib.contextmanager
def _exit_event(process: subprocess.Popen[bytes]) -> Iterator[tuple[int, ...]]:
    """A descriptor that becomes readable when the child ends; none where the system has no such thing."""
    try:
        fd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        yield ()
        return
    try:
        yield (fd,)
    finally:
        os.close(fd)


# ---- Cleaning up ---------------------------------------------------------------------------------


def _adopt_orphans() -> None:
    """Orphans of a check become our children, so that they can be found and reaped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _clean_up(process: subprocess.Popen[bytes], mark: str, before: set[int]) -> int:
    """Kill what is left of the check; returns how many outlived a child that had ended by itself."""
    ended_by_itself = process.poll() is not None
    strays = _strays(process.pid, mark, before)
    if ended_by_itself and strays:
        time.sleep(GRACE_S)  # a helper that is just ending is not left behind
        strays = _strays(process.pid, mark, before)
    outlived = len(strays) if ended_by_itself else 0
    for _ in range(50):
        if strays or process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        _reap(before)
        strays = _strays(process.pid, mark, before)
        if not strays:
            break
        time.sleep(0.02)
    return outlived


def _strays(group: int, mark: str, before: set[int]) -> set[int]:
    """Living processes of the check: by session, by environment, or adopted by us since."""
    if sys.platform != "linux":
        return {group} if _group_lives(group) else set()
    found = set(_children()) - before - {group}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) not in (group, os.getpid()):
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == group or mark in _environ(entry.name):
                    found.add(int(entry.name))
    return {pid for pid in found if not _is_zombie(pid)}


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def _environ(pid: str) -> str:
    return Path("/proc", pid, "environ").read_bytes().decode("latin-1")


def _is_zombie(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (OSError, IndexError):
        return True


def _children() -> list[int]:
    """Pids of this process's children, of all its threads."""
    pids: list[int] = []
    lists = list(Path("/proc/self/task").glob("*/children"))
    for task in lists:
        with contextlib.suppress(OSError):
            pids += [int(word) for word in task.read_text().split()]
    if lists or not Path("/proc/self").exists():
        return pids
    for entry in os.scandir("/proc"):  # a kernel without CONFIG_PROC_CHILDREN
        if entry.name.isdigit() and _parent(entry.name) == os.getpid():
            pids.append(int(entry.name))
    return pids


def _parent(pid: str) -> int | None:
    try:
        return int(Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _reap(before: set[int]) -> None:
    """Collect adopted orphans that have ended; children that were there before are not ours to touch."""
    for pid in set(_children()) - before:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
