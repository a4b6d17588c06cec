"""Due storage jobs run off the event loop, and a failure ends them."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from penstock.server.storage_jobs import StorageJobs
from penstock.storage.engine import Engine, Job, OnOwner
from penstock.storage.flush_threads import FlushThreads


class RecordingJob:
    name = "note"

    def __init__(self, owner: int, storage_jobs: "list[StorageJobs]") -> None:
        self.owner = owner
        self.storage_jobs = storage_jobs
        self.ran_on = self.visited_on = 0

    def run(self, on_owner: OnOwner) -> None:
        self.ran_on = threading.get_ident()
        self.visited_on = on_owner(threading.get_ident)
        on_owner(self.storage_jobs[0].stop)


class FailingJob:
    name = "broken"

    def run(self, on_owner: OnOwner) -> None:
        on_owner(lambda: 1 // 0)


class DueOnce:
    """An engine that has one round of jobs."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = list(jobs)

    def due_jobs(self, now_ms: int) -> Sequence[Job]:
        jobs, self._jobs = self._jobs, []
        return jobs


def run(jobs: Sequence[Job], started: list[StorageJobs]) -> None:
    async def serve() -> None:
        with FlushThreads(1) as background:
            started.append(
                StorageJobs(cast("Engine", DueOnce(jobs)), background, lambda: 0, lambda: None)
            )
            await started[0].run()

    asyncio.run(asyncio.wait_for(serve(), 180))


def test_a_job_runs_off_the_loop_and_its_callbacks_on_it() -> None:
    started: list[StorageJobs] = []
    note = RecordingJob(threading.get_ident(), started)
    run([note], started)
    assert note.visited_on == threading.get_ident()
    assert note.ran_on not in (0, threading.get_ident())


def test_a_job_that_fails_ends_the_storage_jobs() -> None:
    with pytest.raises(ZeroDivisionError):
        run([FailingJob()], [])


def test_a_flush_that_failed_unexpectedly_ends_the_storage_jobs() -> None:
    async def serve() -> None:
        background = FlushThreads(1)
        failed = threading.Event()

        def fail() -> Any:
            failed.set()
            raise LookupError("lost")

        background.run(fail)
        failed.wait(180)
        background._rounds.shutdown()
        await StorageJobs(cast("Engine", DueOnce([])), background, lambda: 0, lambda: None).run()

    with pytest.raises(LookupError):
        asyncio.run(asyncio.wait_for(serve(), 180))
