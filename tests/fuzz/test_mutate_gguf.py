"""The mutation campaign notices what it must: each kind of finding from a driver that has it."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from fixtures import tiny
from tests.fuzz import mutate_gguf as mg

# Stands in for drive.c: answers frames, except that mutant 3 meets the fault.
FAKE = """#!{python}
import os, struct, sys, time
leak = False
while head := sys.stdin.buffer.read(32):
    size, n, number, run = struct.unpack("<4Q", head)
    sys.stdin.buffer.read(n)
    answer = "ok"
    if number == 3:
        {fault}
    print(answer, flush=True)
sys.exit(23 if leak else 0)
"""


def driver(folder: Path, fault: str) -> Path:
    path = folder / "driver"
    path.write_text(FAKE.format(python=sys.executable, fault=fault))
    path.chmod(0o755)
    return path


def mutants(count: int = 8) -> list[mg.Mutant]:
    return [mg.Mutant(i, "fake", b"GGUF", 4, True) for i in range(count)]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("sys.exit('ERROR: AddressSanitizer')", "exit 1\nERROR: AddressSanitizer"),
        ("os.kill(os.getpid(), 11)", "exit -11"),
        ("answer = 'open 3 '", "refused without a text"),
        ("answer = 'model 5 out of memory'", "asked for absurd memory"),
        ("leak = True", "bad end of the process"),
    ],
)
def test_a_fault_is_found_and_costs_only_its_mutant(tmp_path: Path, fault: str, says: str) -> None:
    tally = mg.drive(driver(tmp_path, fault), mutants())
    [(mutant, text)] = tally.findings
    assert mutant.number == 3
    assert says in text
    assert tally.outcomes.total() == 8
    assert tally.outcomes["ok"] >= 7


def test_a_hang_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg, "SECONDS", 2.0)
    tally = mg.drive(driver(tmp_path, "time.sleep(1000)"), mutants(5))
    assert [m.number for m, _ in tally.findings] == [3]
    assert tally.outcomes == Counter(ok=4, died=1)


def test_no_fault_no_finding_and_refusals_are_grouped(tmp_path: Path) -> None:
    refusal = 'open 3 byte 77: key "a": 13 is not the number of a value type'
    tally = mg.drive(driver(tmp_path, f"answer = {refusal!r}"), mutants())
    assert tally.findings == []
    assert tally.outcomes == Counter({"ok": 7, "refused (open)": 1})
    assert list(tally.refusals) == ['open 3: byte N: key "…": N is not the number of a value type']


def test_findings_a_failed_control_and_too_few_accepted_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg, "ROOT", tmp_path)
    campaign = mg.Campaign(1, [small_base()], None)
    good = mg.Tally(Counter({"ok": 5, "refused (open)": 95}))
    assert mg.report(good, campaign, 100, 0.05) == 0
    assert mg.report(mg.Tally(Counter({"ok": 4, "refused (open)": 96})), campaign, 100, 0.05) == 1
    good.findings.append((mutants()[0], "text"))
    assert mg.report(good, campaign, 100, 0.05) == 1
    assert (tmp_path / "out" / "mutants" / "1-0.gguf").read_bytes() == b"GGUF"
    broken = mg.run_campaign(driver(tmp_path, "answer = 'open 3 refused'"), campaign, [0], 1)
    assert [text for _, text in broken.findings] == ["a control did not pass"]


def small_base() -> mg.Base:
    data = tiny.build_bytes("llama-q4_0")
    return mg.mapped(mg.Base("llama-q4_0", data, len(data), True))


def test_the_map_covers_the_header_without_gap_or_overlap() -> None:
    base = small_base()
    places = sorted((f.at, f.size) for fields in base.fields.values() for f in fields)
    assert places[0][0] == 0
    ends = [at + size for at, size in places]
    assert [at for at, _ in places[1:]] == ends[:-1]
    assert ends[-1] == base.header_end
    assert len(base.data) - base.header_end > 10_000


def test_mutants_are_deterministic_and_differ() -> None:
    first, again = (mg.Campaign(7, [small_base()], None) for _ in range(2))
    made = [first.mutant(i) for i in range(60)]
    assert made == [again.mutant(i) for i in range(60)]
    assert made != [mg.Campaign(8, first.bases, None).mutant(i) for i in range(60)]
    assert len({m.data for m in made}) > 55
    assert {m.title.split(": ")[1] for m in made} >= {"lie", "small_lie", "weight_noise", "whole_entries"}


def test_removing_doubling_and_moving_entries_keeps_a_file_well_formed() -> None:
    """Otherwise the reader would refuse it and the loader never be tried."""
    base = small_base()
    for seed in range(30):
        data = mg.whole_entries(random.Random(seed), base)
        again = mg.mapped(mg.Base("again", data, len(data), True))
        assert abs(len(again.keys) - len(base.keys)) + abs(len(again.tensors) - len(base.tensors)) <= 1
        assert data.endswith(base.data[-10_000:])
