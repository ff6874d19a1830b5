"""One generation at a time: a bounded FIFO queue in front of one worker thread.

The event loop owns requests, the worker owns the model. A job crosses over twice: into the queue,
and back through ``Job.emit``. A job that is cancelled leaves the queue at once, or, while it runs,
is interrupted inside the step that is being evaluated.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.serve.errors import busy


@dataclass(slots=True)
class Counters:
    """Requests by their fate, for /health. Written under the scheduler's lock."""

    requests_total: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """Last event of a job that failed."""

    error: Exception


class Ended:
    """Last event of a job that finished or was cancelled."""


@dataclass(eq=False, slots=True)
class Job:
    """One admitted request. ``events`` belongs to the event loop; ``emit`` may be called anywhere."""

    loop: asyncio.AbstractEventLoop
    work: Callable[[Job], None] | None = None
    state: str = "reserved"  # reserved, queued, running, over
    cancelled: bool = False
    events: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)

    def emit(self, event: object) -> None:
        """Hand an event to whoever answers the request."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)


class Scheduler:
    """``interrupt(True)`` must stop a running step of the model soon; ``interrupt(False)`` re-arms it."""

    def __init__(self, interrupt: Callable[[bool], None], *, limit: int = 64) -> None:
        self.counters = Counters()
        self.limit = limit
        self.draining = False
        self._interrupt = interrupt
        self._waiting: deque[Job] = deque()
        self._reserved = 0
        self._current: Job | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)
        self._thread.start()

    @property
    def active(self) -> int:
        """Generations that run now: 0 or 1."""
        return int(self._current is not None)

    @property
    def queued(self) -> int:
        """Admitted requests that do not run yet."""
        return self._reserved + len(self._waiting)

    def reserve(self, loop: asyncio.AbstractEventLoop) -> Job:
        """A place in the queue for a request that is still being prepared; 503 when there is none."""
        with self._changed:
            self.counters.requests_total += 1
            if self.draining:
                self.counters.rejected += 1
                raise busy("the server is stopping", "server_stopping")
            if self.queued >= self.limit + (self._current is None):
                self.counters.rejected += 1
                raise busy(f"{self.limit} requests are waiting already", "queue_full")
            self._reserved += 1
            return Job(loop)

    def submit(self, job: Job, work: Callable[[Job], None]) -> None:
        """Queue a reserved job."""
        with self._changed:
            if job.state != "reserved":
                return
            self._reserved -= 1
            job.state = "queued"
            job.work = work
            self._waiting.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Stop a job wherever it is; nothing happens when it is over."""
        with self._changed:
            if job.state == "over" or job.cancelled:
                return
            job.cancelled = True
            if job is self._current:
                self._interrupt(True)
                return
            self._leave(job)
            self.counters.cancelled += 1
            job.emit(Ended())

    def withdraw(self, job: Job) -> None:
        """Give a reserved place back: the request was refused."""
        with self._changed:
            if job.state == "reserved":
                self._leave(job)

    def drain(self) -> None:
        """Take nothing more, refuse what waits, let the running generation end."""
        with self._changed:
            self.draining = True
            for job in list(self._waiting):
                self._leave(job)
                self.counters.rejected += 1
                job.emit(Failed(busy("the server is stopping", "server_stopping")))

    def stop_current(self) -> None:
        """Interrupt the running generation, which then fails with 503."""
        with self._changed:
            job = self._current
            if job is not None and not job.cancelled:
                job.cancelled = True
                job.emit(Failed(busy("the server is stopping", "server_stopping")))
                self._interrupt(True)

    def close(self) -> None:
        """Drain, interrupt, and wait for the worker."""
        self.drain()
        self.stop_current()
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _leave(self, job: Job) -> None:
        if job.state == "reserved":
            self._reserved -= 1
        elif job.state == "queued":
            self._waiting.remove(job)
        job.state = "over"

    def _next(self) -> Job | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting:
                return None
            job = self._current = self._waiting.popleft()
            job.state = "running"
            return job

    def _run(self) -> None:
        while (job := self._next()) is not None:
            event: object = Ended()
            error: Exception | None = None
            try:
                if job.work is not None:
                    job.work(job)
            except Exception as raised:
                error = raised
                event = Failed(raised)
            self._finish(job, error, event)

    def _finish(self, job: Job, error: Exception | None, event: object) -> None:
        with self._changed:
            if job.cancelled:
                self.counters.cancelled += 1
                event = Ended()
            elif error is not None:
                self.counters.failed += 1
            else:
                self.counters.completed += 1
            job.state = "over"
            self._current = None
            self._interrupt(False)
        job.emit(event)
