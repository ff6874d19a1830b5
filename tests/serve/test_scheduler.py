"""Order, limits, cancellation and draining of the queue, with work that waits on events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine.errors import CancelledError
from engine.serve.errors import ApiError
from engine.serve.scheduler import Ended, Failed, Job, Scheduler

PATIENCE = 30.0


class Steps:
    """Stands for a model: work runs until it is released or interrupted."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.release = threading.Semaphore(0)
        self.running = threading.Event()
        self.stop = False

    def interrupt(self, on: bool) -> None:
        self.stop = on

    def work(self, name: str) -> Any:
        def run(job: Job) -> None:
            self.order.append(name)
            self.running.set()
            while not self.release.acquire(timeout=0.01):
                if self.stop:
                    raise CancelledError("interrupted")

        return run


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def scheduler(steps: Steps) -> Iterator[Scheduler]:
    made = Scheduler(steps.interrupt, limit=3)
    yield made
    made.close()


async def last(job: Job) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await job.events.get()


def add(scheduler: Scheduler, work: Any) -> Job:
    job = scheduler.reserve(asyncio.get_running_loop())
    scheduler.submit(job, work)
    return job


async def running(steps: Steps) -> None:
    assert await asyncio.to_thread(steps.running.wait, PATIENCE)
    steps.running.clear()


def test_first_in_first_out_one_at_a_time(scheduler: Scheduler, steps: Steps) -> None:
    async def main() -> None:
        jobs = [add(scheduler, steps.work(name)) for name in "abc"]
        await running(steps)
        assert (scheduler.active, scheduler.queued) == (1, 2)
        for _ in jobs:
            steps.release.release()
        for job in jobs:
            assert isinstance(await last(job), Ended)

    asyncio.run(main())
    assert steps.order == ["a", "b", "c"]
    assert scheduler.counters.completed == 3
    assert (scheduler.active, scheduler.queued) == (0, 0)


def test_a_full_queue_is_503_with_retry_after(scheduler: Scheduler, steps: Steps) -> None:
    async def main() -> None:
        add(scheduler, steps.work("a"))
        await running(steps)
        for name in "bcd":
            add(scheduler, steps.work(name))
        with pytest.raises(ApiError) as caught:
            scheduler.reserve(asyncio.get_running_loop())
        assert (caught.value.status, caught.value.code) == (503, "queue_full")
        assert int(caught.value.headers["Retry-After"]) > 0

    asyncio.run(main())
    assert (scheduler.counters.rejected, scheduler.counters.requests_total) == (1, 5)


def test_reserved_places_count_and_can_be_given_back(scheduler: Scheduler, steps: Steps) -> None:
    async def main() -> None:
        jobs = [scheduler.reserve(asyncio.get_running_loop()) for _ in range(4)]
        with pytest.raises(ApiError):
            scheduler.reserve(asyncio.get_running_loop())
        scheduler.withdraw(jobs[0])
        scheduler.withdraw(jobs[0])
        assert scheduler.queued == 3
        scheduler.submit(jobs[0], steps.work("withdrawn"))
        scheduler.cancel(jobs[1])
        assert scheduler.queued == 2

    asyncio.run(main())
    assert steps.order == []
    assert scheduler.counters.cancelled == 1


def test_cancelled_in_the_queue_never_runs(scheduler: Scheduler, steps: Steps) -> None:
    async def main() -> None:
        first, second, third = (add(scheduler, steps.work(name)) for name in "abc")
        await running(steps)
        scheduler.cancel(second)
        assert isinstance(await last(second), Ended)
        steps.release.release()
        steps.release.release()
        await last(first)
        await last(third)

    asyncio.run(main())
    assert steps.order == ["a", "c"]
    assert (scheduler.counters.cancelled, scheduler.counters.completed) == (1, 2)


def test_cancelled_while_running_is_interrupted_and_the_next_runs(scheduler: Scheduler, steps: Steps) -> None:
    async def main() -> None:
        first, second = (add(scheduler, steps.work(name)) for name in "ab")
        await running(steps)
        scheduler.cancel(first)
        assert isinstance(await last(first), Ended)
        await running(steps)
        assert not steps.stop
        steps.release.release()
        assert isinstance(await last(second), Ended)
        scheduler.cancel(second)
        assert not steps.stop

    asyncio.run(main())
    assert (scheduler.counters.cancelled, scheduler.counters.completed) == (1, 1)


def test_a_failure_reaches_its_own_request_only(scheduler: Scheduler, steps: Steps) -> None:
    def broken(job: Job) -> None:
        raise ValueError("broken")

    async def main() -> None:
        first = add(scheduler, broken)
        second = add(scheduler, steps.work("b"))
        steps.release.release()
        failure = await last(first)
        assert isinstance(failure, Failed)
        assert isinstance(failure.error, ValueError)
        assert isinstance(await last(second), Ended)

    asyncio.run(main())
    assert (scheduler.counters.failed, scheduler.counters.completed) == (1, 1)


def test_draining_refuses_and_then_stops(scheduler: Scheduler, steps: Steps) -> None:
    async def main() -> None:
        first, second = (add(scheduler, steps.work(name)) for name in "ab")
        await running(steps)
        scheduler.drain()
        waiting = await last(second)
        assert isinstance(waiting, Failed)
        assert isinstance(waiting.error, ApiError)
        assert (waiting.error.status, waiting.error.code) == (503, "server_stopping")
        with pytest.raises(ApiError):
            scheduler.reserve(asyncio.get_running_loop())
        assert scheduler.active == 1
        scheduler.stop_current()
        stopped = await last(first)
        assert isinstance(stopped, Failed)
        assert isinstance(stopped.error, ApiError)

    asyncio.run(main())
    assert steps.order == ["a"]
