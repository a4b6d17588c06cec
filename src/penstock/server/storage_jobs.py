"""Runs the storage engine's due jobs (checkpoints, retention, compaction) off the event loop.

One job at a time. It knows nothing of a job's content. A job that fails unexpectedly ends `run`,
and with it the broker.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from penstock.storage.engine import Engine
from penstock.storage.flush_threads import FlushThreads

Result = TypeVar("Result")

EVERY_S = 0.5  # a timed flush or a retention check may be this late


class StorageJobs:
    """`run` is a task of the broker; `stop` lets the current jobs finish."""

    def __init__(
        self,
        engine: Engine,
        background: FlushThreads,
        wall_ms: Callable[[], int],
        check_disks: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._check_disks = check_disks  # on the loop, after the jobs; an error ends the broker
        self._background = background
        self._wall_ms = wall_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage-jobs")
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        on_owner = _OnOwner(loop)
        try:
            while not self._stopping.is_set():
                self._background.check()  # raises the unexpected error of a flush
                for job in self._engine.due_jobs(self._wall_ms()):
                    await loop.run_in_executor(self._thread, job.run, on_owner)
                self._check_disks()
                await self._pause()
        finally:
            self._thread.shutdown(wait=False)

    def stop(self) -> None:
        """`run` returns after the jobs that are due now."""
        self._stopping.set()

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), EVERY_S)
        except TimeoutError:
            return


class _OnOwner:
    """Runs a function on the event loop from a job's thread and waits for its result."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, function: Callable[[], Result]) -> Result:
        result: Future[Result] = Future()
        self._loop.call_soon_threadsafe(_fulfil, result, function)
        while True:
            try:
                return result.result(timeout=1)
            except TimeoutError:
                if self._loop.is_closed():  # it will never run: the job ends here
                    raise


def _fulfil(result: "Future[Result]", function: Callable[[], Result]) -> None:
    try:
        value = function()
    except BaseException as error:  # raised in the job's thread
        result.set_exception(error)
    else:
        result.set_result(value)
