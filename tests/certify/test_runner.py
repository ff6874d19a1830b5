"""A check that hangs, crashes, floods or leaves a process behind costs only itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certify import runner as runner_module
from certify.journal import JobResult
from certify.reasons import Reason
from certify.runner import Runner, Wiring
from certify.targets import Job, Pin
from certify.types import Outcome
from tests.certify import fakes

CHECKS = "tests.certify.fake_checks"


def job(folder: Path, what: str, *, timeout_s: float = 30.0, **parameters: Any) -> Job:
    made = fakes.make_job(folder, "act", what=what, **parameters)
    return replace(made, timeout_s=timeout_s)


def run(
    folder: Path, what: str, *, subject: str = "Honest", peer: str = "Peer", **more: Any
) -> tuple[Outcome, JobResult, Runner]:
    wiring = Wiring(CHECKS, f"tests.certify.fakes:{subject}", "tests.certify.fakes:open_reference")
    engine = Runner(folder / "out", wiring)
    made = replace(job(folder, what, **more), references={"peer": Pin("peer", peer, "b7")})
    item = engine.run(made)
    return item.result.outcome, item, engine


def living_sleepers() -> set[int]:
    """Pids of the processes that ``fakes.leave_a_child`` starts, or that sleep in a check."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if b"time.sleep(600)" in command or b"certify.child" in command:
            found.add(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Any:
    """Whatever a test's checks did, no process of theirs survives it."""
    before = living_sleepers()
    yield
    mine = {
        pid
        for pid in living_sleepers() - before
        if Path("/proc", str(pid), "stat").exists()
        and Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        and _descends_from_us(pid)
    }
    assert not mine


def _descends_from_us(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def test_a_good_check_passes_and_its_evidence_is_hashed(tmp_path: Path) -> None:
    outcome, item, engine = run(tmp_path, "evidence")
    assert outcome.outcome == "pass"
    assert [record.name for record in outcome.evidence] == ["act.jsonl"]
    kept = engine.evidence_folder("fake", "act") / "act.jsonl"
    assert kept.read_text() == '{"model": "fake", "third": 0.3333333333333333}\n'
    assert item.result.requirement.startswith("A check that misbehaves")
    assert sorted(path.name for path in (tmp_path / "out" / "evidence").iterdir()) == ["fake"]


@pytest.mark.parametrize(
    "what", ["nothing", "unknown_reason", "no_reason", "not_a_number", "no_outcome", "raise"]
)
def test_a_check_that_is_itself_wrong_is_an_error(what: str, tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, what)
    assert (outcome.outcome, outcome.reason) == ("error", Reason.HARNESS_FAILED)


@pytest.mark.parametrize("what", ["hang", "hang_deaf", "hang_with_grandchild"])
def test_a_check_that_hangs_is_ended_in_time(what: str, tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, what, timeout_s=2.0)
    assert (outcome.outcome, outcome.reason) == ("error", Reason.HARNESS_FAILED)
    assert "limit of 2 s" in outcome.detail


def test_a_hang_of_our_engine_is_a_fail_and_one_of_the_reference_an_error(tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, "describe", subject="Hangs", timeout_s=2.0)
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.TIMEOUT)
    outcome, _, _ = run(tmp_path, "tokenize_reference", peer="PeerHangs", timeout_s=2.0)
    assert (outcome.outcome, outcome.reason) == ("error", Reason.REFERENCE_FAILED)


def test_a_crash_is_judged_by_who_was_at_work(tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, "describe", subject="Crashes")
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.CRASHED)
    assert "SIGSEGV" in outcome.detail
    outcome, _, _ = run(tmp_path, "segv")
    assert (outcome.outcome, outcome.reason) == ("error", Reason.HARNESS_FAILED)
    assert "SIGSEGV" in outcome.detail
    outcome, _, _ = run(tmp_path, "describe", subject="Dies")
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.CRASHED)
    outcome, _, _ = run(tmp_path, "describe", subject="Refuses")
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.REFUSED)


@pytest.mark.parametrize("what", ["exit", "system_exit"])
def test_a_check_that_ends_without_a_result_is_no_pass(what: str, tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, what)
    assert (outcome.outcome, outcome.reason) == ("error", Reason.HARNESS_FAILED)


def test_a_flood_of_output_is_cut_and_the_check_goes_on(tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, "flood", timeout_s=60.0)
    assert outcome.outcome == "pass"
    log = tmp_path / "out" / "logs" / "fake.act.log"
    assert log.stat().st_size < runner_module.MAX_OUTPUT_BYTES + 100
    assert b"bytes dropped" in log.read_bytes()


def test_a_flood_without_end_stops_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "MAX_FLOOD_BYTES", 4 << 20)
    outcome, _, _ = run(tmp_path, "flood_without_end", timeout_s=60.0)
    assert (outcome.outcome, outcome.reason) == ("error", Reason.HARNESS_FAILED)
    assert "bytes" in outcome.detail


@pytest.mark.parametrize("what", ["evidence_flood", "disk_flood"])
def test_a_flood_of_the_disk_is_an_error(what: str, tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, what, timeout_s=60.0)
    assert (outcome.outcome, outcome.reason) == ("error", Reason.HARNESS_FAILED)
    left = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert left < 100 << 20


@pytest.mark.parametrize("what", ["leak", "leak_session", "leak_hidden", "leak_fork"])
def test_a_process_left_behind_is_noticed_and_killed(what: str, tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, what)
    assert (outcome.outcome, outcome.reason) == ("error", Reason.PROCESS_LEFT_BEHIND)


def test_an_innocent_child_of_the_harness_survives_a_check(tmp_path: Path) -> None:
    import subprocess
    import sys

    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    try:
        outcome, _, _ = run(tmp_path, "leak_hidden")
        assert outcome.reason == Reason.PROCESS_LEFT_BEHIND
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
