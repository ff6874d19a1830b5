"""The process of one check: ``python -m certify.child`` with the work order on standard input.

It writes one JSON document to the result descriptor, and everything else that anyone prints goes to
the captured output. It ends with its parent, however that one ends, and takes its group along.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from certify import registry
from certify.phase import REFERENCE, SUBJECT, Guarded, PartyError, Phase
from certify.reasons import Reason, known
from certify.references import ReferenceFailure, ReferenceUnavailable
from certify.targets import Artifact, Context, Job, Pin, Stop, Target, Text
from certify.types import Outcome
from engine.errors import EngineError, ModelError, NonFiniteError, OutOfMemoryError
from engine.verdict import not_met

MAX_FILE_BYTES = 256 << 20
PR_SET_PDEATHSIG = 1
OUTCOMES = ("pass", "fail", "skip", "error")


def job_from_json(data: Mapping[str, Any]) -> Job:
    """The inverse of ``dataclasses.asdict`` for a Job."""
    parent = data["parent"]
    return Job(
        **{
            **data,
            "artifacts": tuple(Artifact(**item) for item in data["artifacts"]),
            "references": {name: Pin(**item) for name, item in data["references"].items()},
            "texts": {name: Text(**item) for name, item in data["texts"].items()},
            "parent": None if parent is None else Artifact(**parent),
        }
    )


def resolve(where: str) -> Any:
    """``package.module:name``, given by the runner's code, never by a manifest."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def run_check(job: Job, wiring: Mapping[str, str], phase: Phase, folder: Path) -> dict[str, Any]:
    """Run the check and return the result document."""
    check = registry.get(job.check, wiring["checks"])
    context = _context(job, wiring, phase, folder)
    try:
        outcome = _judged(check.run, context)
        fault = outcome_fault(outcome)
        if fault:
            outcome = Outcome("error", Reason.HARNESS_FAILED, fault)
    finally:
        closing = _close(context)
    if closing and outcome.outcome == "pass":
        outcome = closing
    outcome = replace(outcome, evidence=context.evidence_records())
    return {"outcome": asdict(outcome), "references": [asdict(use) for use in context.uses.values()]}


def _context(job: Job, wiring: Mapping[str, str], phase: Phase, folder: Path) -> Context:
    with phase.enter(SUBJECT):
        target = resolve(wiring["target"])(job)
    guarded = cast("Target", Guarded(target, phase, SUBJECT))
    return Context(job, guarded, phase, folder, resolve(wiring["references"]))


def _close(context: Context) -> Outcome | None:
    try:
        context.close()
    except Exception as error:
        return outcome_of(error)
    return None


def _judged(run: Callable[[Context], Outcome], context: Context) -> Outcome:
    try:
        return run(context)
    except Exception as error:
        return outcome_of(error)


def outcome_of(error: Exception) -> Outcome:
    """Whose failure an exception is. Ours is a fail; a reference's or the harness's an error."""
    if isinstance(error, Stop):
        return error.outcome
    party, cause = (error.party, error.cause) if isinstance(error, PartyError) else (None, error)
    detail = f"{type(cause).__name__}: {cause}"
    if isinstance(cause, (MemoryError, OutOfMemoryError)):
        return Outcome("error", Reason.OUT_OF_MEMORY, detail)
    if isinstance(cause, ReferenceUnavailable):
        return Outcome("skip", Reason.REFERENCE_MISSING, str(cause))
    if party == REFERENCE or isinstance(cause, ReferenceFailure):
        return Outcome("error", Reason.REFERENCE_FAILED, detail)
    if party == SUBJECT or isinstance(cause, EngineError):
        return Outcome("fail", engine_reason(cause), detail)
    frame = traceback.extract_tb(cause.__traceback__)[-1:]
    where = f" at {Path(frame[0].filename).name}:{frame[0].lineno}" if frame else ""
    return Outcome("error", Reason.HARNESS_FAILED, detail + where)


def engine_reason(error: Exception) -> Reason:
    """The reason code of an exception out of our engine."""
    if isinstance(error, NonFiniteError):
        return Reason.NONFINITE
    return Reason.REFUSED if isinstance(error, ModelError) else Reason.ENGINE_FAILED


def outcome_fault(outcome: Any) -> str | None:
    """Why what a check returned is no outcome, or None where it is one."""
    if not isinstance(outcome, Outcome):
        return f"the check returned {type(outcome).__name__}"
    if outcome.outcome not in OUTCOMES:
        return f"the check returned the outcome {outcome.outcome!r}"
    if (outcome.reason is None) != (outcome.outcome == "pass"):
        return f"the outcome {outcome.outcome} came with the reason {outcome.reason!r}"
    if outcome.reason is not None and not known(outcome.reason):
        return f"the reason {outcome.reason!r} is not in certify/reasons.py"
    for name, value in {**outcome.measurements, **outcome.thresholds}.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} is {value}"
    if outcome.outcome == "pass" and not any(outcome.measurements.values()):
        return "the check passed without having measured anything"
    if outcome.outcome == "pass" and (missed := not_met(outcome.measurements, outcome.thresholds)):
        return f"the check passed although its figures do not meet {', '.join(missed)}"
    if outcome.outcome == "pass" and any(item.outcome in ("fail", "error") for item in outcome.variants):
        return "the check passed although a variant did not"
    return None


def _die_with_parent(lifeline: int) -> None:
    """End the whole group when the parent goes: it holds the other end of the lifeline."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Carry out the work order."""
    order = json.load(sys.stdin)
    _die_with_parent(order["lifeline_fd"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    phase = Phase(order["phase_fd"])
    try:
        document = run_check(job_from_json(order["job"]), order["wiring"], phase, Path(order["folder"]))
    except Exception as error:
        document = {"outcome": asdict(outcome_of(error)), "references": []}
    with os.fdopen(order["result_fd"], "w", encoding="utf-8") as result:
        json.dump(document, result, allow_nan=False)
    sys.stdout.flush()
    sys.stderr.flush()


if __name__ == "__main__":
    main()
