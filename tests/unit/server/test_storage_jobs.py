"""Upkeep runs what is due beside the loop, and does not hide what fails."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from penstock.server.storage_jobs import StorageJobs
from penstock.storage.engine import Engine, Job, OnOwner
from penstock.storage.flush_threads import FlushThreads


class Note:
    name = "note"

    def __init__(self, owner: int, upkeep: "list[StorageJobs]") -> None:
        self.owner = owner
        self.upkeep = upkeep
        self.ran_on = self.visited_on = 0

    def run(self, on_owner: OnOwner) -> None:
        self.ran_on = threading.get_ident()
        self.visited_on = on_owner(threading.get_ident)
        on_owner(self.upkeep[0].stop)


class Broken:
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


def run(jobs: Sequence[Job], made: list[StorageJobs]) -> None:
    async def serve() -> None:
        with FlushThreads(1) as background:
            made.append(
                StorageJobs(cast("Engine", DueOnce(jobs)), background, lambda: 0, lambda: None)
            )
            await made[0].run()

    asyncio.run(asyncio.wait_for(serve(), 30))


def test_a_job_runs_off_the_loop_and_visits_it() -> None:
    made: list[StorageJobs] = []
    note = Note(threading.get_ident(), made)
    run([note], made)
    assert note.visited_on == threading.get_ident()
    assert note.ran_on not in (0, threading.get_ident())


def test_a_job_that_fails_ends_the_upkeep() -> None:
    with pytest.raises(ZeroDivisionError):
        run([Broken()], [])


def test_a_flush_that_failed_unexpectedly_ends_the_upkeep() -> None:
    async def serve() -> None:
        background = FlushThreads(1)
        failed = threading.Event()

        def fail() -> Any:
            failed.set()
            raise LookupError("lost")

        background.run(fail)
        failed.wait(30)
        background._rounds.shutdown()
        await StorageJobs(cast("Engine", DueOnce([])), background, lambda: 0, lambda: None).run()

    with pytest.raises(LookupError):
        asyncio.run(asyncio.wait_for(serve(), 30))
