"""The journal: what it keeps, what it refuses, what a crash may do to it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certify import journal
from certify.journal import JobResult, Journal, JournalError
from certify.targets import ReferenceUse
from certify.types import CheckResult, Digest, Evidence, Outcome, Variant

KEY: dict[str, Any] = {
    "manifest": "m" * 64,
    "engine build": "e" * 64,
    "artifacts of a": [{"sha256": "1" * 64}],
}


def item(model: str = "a", check: str = "identity") -> JobResult:
    outcome = Outcome(
        "fail",
        "digests_differ",
        "ünïcode\x1b[0m",
        {"kld_mean_nats": 1 / 3, "corpus": "prose", "nothing": None},
        {"kld_mean_nats_max": 0.01},
        (Variant("threads=2", "fail", "digests_differ"),),
        (Evidence("identity.jsonl", "2" * 64, 12),),
        Digest((2, 818), (0, 1), 300, "3" * 64),
    )
    result = CheckResult(check, 1, "It MUST hold.", outcome, {"threads": [1, 2]}, 1.25)
    return JobResult(model, result, (ReferenceUse("peer", "peer", "1.0.7", "b7", "b7", ("avx2",)),))


def test_what_was_written_comes_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.create(path, KEY) as first:
        first.append(item())
        first.append(item("b"))
    with Journal.resume(path, KEY) as second:
        assert second.finished == {("a", "identity"): item(), ("b", "identity"): item("b")}


def test_every_record_is_on_the_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with Journal.create(tmp_path / "journal.jsonl", KEY) as opened:
        before = len(synced)
        opened.append(item())
        assert len(synced) == before + 1


def test_an_error_is_tried_again_and_its_later_result_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    failed = replace(
        item(), result=replace(item().result, outcome=Outcome("error", "harness_failed", "ENOSPC"))
    )
    with Journal.create(path, KEY) as first:
        first.append(failed)
        first.append(item("b"))
    with Journal.resume(path, KEY) as second:
        assert set(second.finished) == {("b", "identity")}
        second.append(item())
    with Journal.resume(path, KEY) as third:
        assert third.finished["a", "identity"] == item()


@pytest.mark.parametrize("name", KEY)
def test_a_journal_of_another_run_is_refused_by_what_changed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.create(path, KEY) as opened:
        opened.append(item())
    data = path.read_bytes()
    with pytest.raises(JournalError, match=f"another run: {name} changed"):
        Journal.resume(path, {**KEY, name: "other"})
    assert path.read_bytes() == data


def test_a_torn_last_line_is_dropped_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.create(path, KEY) as opened:
        opened.append(item())
        opened.append(item("b"))
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    for cut in range(1, len(data)):
        path.write_bytes(data[:cut])
        whole = sum(cut >= len(b"".join(lines[: n + 1])) for n in range(3))
        with Journal.resume(path, KEY) as opened:
            assert len(opened.finished) == max(0, whole - 1)
            opened.append(item("c"))
        with Journal.resume(path, KEY) as opened:
            assert ("c", "identity") in opened.finished
            assert len(opened.finished) == max(1, whole)


def test_damage_before_the_end_is_refused_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.create(path, KEY) as opened:
        opened.append(item())
        opened.append(item("b"))
    lines = path.read_bytes().splitlines(keepends=True)
    for number in (0, 1):
        bad = list(lines)
        bad[number] = bad[number].replace(b"1", b"4", 1)
        path.write_bytes(b"".join(bad))
        offset = len(b"".join(lines[:number]))
        with pytest.raises(JournalError, match=f"damaged at byte {offset}"):
            Journal.resume(path, KEY)


def test_two_runs_never_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.create(path, KEY):
        for opener in (Journal.create, Journal.resume):
            with pytest.raises(JournalError, match="another run is writing"):
                opener(path, KEY)
    Journal.resume(path, KEY).close()


def test_what_is_no_file_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    os.mkfifo(path)
    for begin in (Journal.create, Journal.resume):
        with pytest.raises(JournalError, match="not a regular file"):
            begin(path, KEY)


def test_a_record_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    opened = Journal.create(path, KEY)
    journal._append(opened._fd, {"schema": journal.SCHEMA, "model": "a"})
    opened.close()
    with pytest.raises(JournalError, match="another shape"):
        Journal.resume(path, KEY)
