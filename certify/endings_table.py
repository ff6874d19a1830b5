"""The side-by-side tables of docs/truncation.md: ``python -m certify.endings_table REPORT [--write]``.

Reads a report that holds the checks ``truncation`` and ``tool`` and the evidence beside it. Figures come
from nowhere else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from certify import report
from certify.agent_cases import FAMILIES
from certify.checks.truncation import LADDER
from certify.endings import RULES
from certify.truncation_cases import CASES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "truncation.md"
BEGIN, END = (
    "<!-- figures: python -m certify.endings_table out/truncation.json --write -->",
    "<!-- end of figures -->",
)
Records = Sequence[Mapping[str, Any]]


def tables(answers: Records, agent: Records) -> list[str]:
    """Markdown of all tables; the parties in the order in which they were asked."""
    parties = list(dict.fromkeys(item["party"] for item in answers))
    lines = [
        "Answers that hold, of those asked for (every budget, buffered and streamed, and stop strings):",
        "",
    ]
    lines += _table("document", parties, _by_case(answers, parties))
    lines += ["", "The reference ladder (`weather`, buffered):", ""]
    lines += _table("budget", parties, _ladder(answers, parties))
    lines += ["", "Rules that were broken, counted:", ""]
    lines += _table("rule", parties, _rules(answers, parties))
    if agent:
        lines += ["", "Agent cases that passed:", ""]
        lines += _table("family", parties, _families(agent, parties))
    return lines


def _table(head: str, parties: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    lines = [f"| {head} | {' | '.join(parties)} |", "| --- |" + " --- |" * len(parties)]
    return lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows]


def _by_case(answers: Records, parties: Sequence[str]) -> list[tuple[str, list[str]]]:
    asked: Counter[tuple[str, str]] = Counter()
    held: Counter[tuple[str, str]] = Counter()
    for item in answers:
        for case in (item["case"], "**all**"):
            asked[item["party"], case] += 1
            held[item["party"], case] += not item["breaches"]
    names = [case.id for case in CASES if any(asked[party, case.id] for party in parties)]
    return [
        (name, [f"{held[party, name]} of {asked[party, name]}" for party in parties])
        for name in [*names, "**all**"]
    ]


def _ladder(answers: Records, parties: Sequence[str]) -> list[tuple[str, list[str]]]:
    cells: dict[tuple[str, int], str] = {}
    for item in answers:
        wanted = item["case"] == "weather" and item["mode"] == "buffered" and item["stop"] is None
        if wanted and item["budget"] in LADDER:
            broken = ", ".join(dict.fromkeys(entry["rule"] for entry in item["breaches"]))
            shown = item["text"] if item["text"] is not None else item["content"] or ""
            text = json.dumps(shown[-48:], ensure_ascii=False)[1:-1].replace("|", "\\|")
            cells[item["party"], item["budget"]] = (f"{broken}: " if broken else "") + f"`{text}`"
    return [(str(rung), [cells.get((party, rung), "") for party in parties]) for rung in LADDER]


def _rules(answers: Records, parties: Sequence[str]) -> list[tuple[str, list[str]]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item in answers:
        counts[item["party"]].update(entry["rule"] for entry in item["breaches"])
    names = [rule for rule in RULES if any(counts[party][rule] for party in parties)]
    return [(f"`{rule}`", [str(counts[party][rule]) for party in parties]) for rule in names]


def _families(agent: Records, parties: Sequence[str]) -> list[tuple[str, list[str]]]:
    asked: Counter[tuple[str, str]] = Counter()
    passed: Counter[tuple[str, str]] = Counter()
    declined: Counter[str] = Counter()
    for item in agent:
        for family in (item["case"].split("-", 2)[2], "**all**"):
            asked[item["party"], family] += 1
            passed[item["party"], family] += item["failure"] is None
        declined[item["party"]] += (item["failure"] or {}).get("category") == "declined"
    names = [family for family in FAMILIES if any(asked[party, family] for party in parties)]
    rows = [
        (name, [f"{passed[party, name]} of {asked[party, name]}" for party in parties])
        for name in [*names, "**all**"]
    ]
    return [*rows, ("declined", [str(declined[party]) for party in parties])]


def read(path: Path) -> tuple[str, Records, Records]:
    """A caption, and the evidence of both checks."""
    document = report.read(path)
    model = document["body"]["models"][0]
    folder = path.with_suffix(".run") / "evidence" / model["id"]
    found: list[Records] = []
    for check in ("truncation", "tool"):
        file = folder / check / f"{check}.jsonl"
        found.append([json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else [])
    peers = ", ".join(f"{item['name']} {item['revision']}" for item in document["body"]["references"])
    day = document["run"]["started"][:10]
    engine = document["body"]["engine"]
    caption = f"{model['id']}, {day}; ours {engine['version']}" + (f", {peers}." if peers else ".")
    return caption, found[0], found[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or put them into the page."""
    parser = argparse.ArgumentParser(description="the tables of docs/truncation.md")
    parser.add_argument("report", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    try:
        caption, answers, agent = read(options.report)
    except (report.ReportError, OSError, ValueError) as error:
        print(f"endings_table: {error}", file=sys.stderr)
        return 2
    text = "\n".join([caption, "", *tables(answers, agent)])
    if not options.write:
        print(text)
        return 0
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
