"""Does what its parameter says, most of it harmful."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from certify.reasons import Reason
from certify.targets import Context
from certify.types import Outcome
from tests.certify import fakes

REQUIREMENT = "A check that misbehaves MUST cost only itself."
VERSION = 1
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"what": {"type": "string"}, "seconds": {"type": "number"}, "note": {"type": "string"}},
}


def run(ctx: Context) -> Outcome:
    """Note that it ran, then act."""
    if "note" in ctx.parameters:
        with Path(ctx.parameters["note"]).open("a") as file:
            file.write(f"{ctx.job.model}\n")
    action = ACTIONS[ctx.parameters.get("what", "pass")]
    return action(ctx) or Outcome("pass", measurements={"things": 1})


def _flood(_: Context) -> None:
    for _ in range(40):  # 40 MiB: below the limit
        sys.stdout.write("flood " * 170_000)


def _flood_without_end(_: Context) -> None:
    while True:
        sys.stdout.write("flood " * 170_000)


def _evidence(ctx: Context) -> None:
    with ctx.evidence("act.jsonl") as file:
        file.write({"model": ctx.job.model, "third": 1 / 3})
    time.sleep(ctx.parameters.get("seconds", 0))


def _evidence_flood(ctx: Context) -> None:
    with ctx.evidence("act.jsonl") as file:
        while True:
            file.write({"x": "y" * 1_000_000})


def _disk_flood(ctx: Context) -> None:
    with (ctx.folder / "big").open("wb") as file:
        for _ in range(300):
            file.write(b"\0" * (1 << 20))


def _grandchild(ctx: Context) -> None:
    fakes.leave_a_child(own_session=False, clean_environment=False)
    time.sleep(600)


def _fork_and_end(_: Context) -> None:
    if os.fork() == 0:
        time.sleep(600)


ACTIONS = {
    "pass": lambda ctx: None,
    "nothing": lambda ctx: Outcome("pass"),
    "unknown_reason": lambda ctx: Outcome("fail", "because"),
    "no_reason": lambda ctx: Outcome("fail"),
    "not_a_number": lambda ctx: Outcome("pass", measurements={"x": float("nan"), "y": 1}),
    "no_outcome": lambda ctx: "fine",
    "fail": lambda ctx: Outcome("fail", Reason.THRESHOLD_MISSED, "as asked"),
    "raise": lambda ctx: 1 // 0,
    "hang": lambda ctx: time.sleep(600),
    "hang_deaf": lambda ctx: (fakes.ignore_everything(), time.sleep(600)),
    "hang_with_grandchild": _grandchild,
    "segv": lambda ctx: fakes.crash(),
    "exit": lambda ctx: os._exit(0),
    "system_exit": lambda ctx: sys.exit(0),
    "flood": _flood,
    "flood_without_end": _flood_without_end,
    "evidence": _evidence,
    "evidence_flood": _evidence_flood,
    "disk_flood": _disk_flood,
    "leak": lambda ctx: fakes.leave_a_child(own_session=False, clean_environment=False) and None,
    "leak_session": lambda ctx: fakes.leave_a_child(own_session=True, clean_environment=False) and None,
    "leak_hidden": lambda ctx: fakes.leave_a_child(own_session=True, clean_environment=True) and None,
    "leak_fork": _fork_and_end,
    "describe": lambda ctx: ctx.target.describe() and None,
    "tokenize_reference": lambda ctx: ctx.tokenizer_reference("peer").tokenize("a", special=False) and None,
}
