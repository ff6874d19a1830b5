"""The tables of docs/truncation.md say what the evidence holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from certify import endings_table
from certify.endings_table import BEGIN, END, PAGE, tables
from tests.certify import fake_endpoint as servers
from tests.certify.fakes import run_check


def test_the_page_has_the_place_of_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1


def test_tables_count_what_held(tmp_path: Path) -> None:
    records = []
    for check in ("truncation", "tool"):
        with servers.running(servers.Unparseable) as url:
            more = {"schemas": ["weather"]} if check == "truncation" else {"cases": 8}
            _, context = run_check(tmp_path, check, compare=[url], **more)
        lines = (context.folder / f"{check}.jsonl").read_text().splitlines()
        records.append([{**item, "party": item["party"][:4]} for item in map(json.loads, lines)])
    text = tables(*records)
    assert "| document | ours | http |" in text
    asked = [item for item in records[0] if item["party"] == "http"]
    held = sum(not item["breaches"] for item in asked)
    assert 0 < held < len(asked)
    assert f"| weather | {len(asked)} of {len(asked)} | {held} of {len(asked)} |" in text
    rung = next(line for line in text if line.startswith("| 2 | "))
    assert rung.split(" | ")[1].startswith("`{")
    assert rung.split(" | ")[2].startswith("unparseable: `{")
    assert "| forced_truncation | 1 of 1 | 0 of 1 |" in text
    assert "| declined | 0 | 0 |" in text


def test_what_is_no_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert endings_table.main([str(tmp_path / "x.json")]) == 2
    assert "endings_table: " in capsys.readouterr().err
