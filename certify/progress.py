"""Progress of a run on stderr: a live line on a terminal, plain lines elsewhere, JSON on request."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from certify import console
from certify.journal import JobResult
from certify.targets import Job
from engine.text import printable


class Reporter:
    """Hears of every start and end. ``quiet`` leaves only what failed."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live: Progress | None = None
        self._task: Any = None
        self._fetch: dict[str, int] = {}
        if not quiet and sys.stderr.isatty() and console.log_format() != "json":
            self._live = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
            )
            self._task = self._live.add_task("starting", total=total)

    def __enter__(self) -> Reporter:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def start(self, job: Job) -> None:
        """A check begins."""
        name = f"{job.model} / {job.check}"
        if self._live is not None:
            self._live.update(self._task, description=escape(printable(name)))
        elif not self._quiet:
            console.log(f"start {name}", event="start", model=job.model, check=job.check)

    def end(self, item: JobResult, resumed: bool) -> None:
        """A check has an outcome."""
        outcome = item.result.outcome
        good = outcome.outcome == "pass"
        if not (self._quiet and good):
            how = "from the journal" if resumed else f"{item.result.elapsed_s:.1f} s"
            why = "" if good else f" [{outcome.reason}] {printable(outcome.detail, 300)}"
            console.log(
                f"{outcome.outcome:5} {item.model} / {item.result.id} ({how}){why}",
                event="end",
                model=item.model,
                check=item.result.id,
                outcome=outcome.outcome,
                reason=outcome.reason,
            )
        if self._live is not None:
            self._live.advance(self._task)

    def fetching(self, name: str, done: int, total: int) -> None:
        """Bytes of a file have arrived; a line every tenth part."""
        tenth = 10 * done // max(total, 1)
        if self._fetch.get(name) != tenth and not self._quiet:
            self._fetch[name] = tenth
            console.log(f"fetching {name}: {10 * tenth} %", event="fetch", name=name, bytes=done, total=total)
