"""Has the engine's upkeep done: asks what is due, and runs it beside the loop, job after job.

Nothing of a job is known here. A job that fails unexpectedly ends `run`, and with it the broker.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from penstock.storage.engine import Engine
from penstock.storage.flush_threads import FlushThreads

Result = TypeVar("Result")

EVERY_S = 0.5  # how late a flush by time or a retention check may come


class StorageJobs:
    """Of one engine. `run` in the broker's task group; `stop` waits for the job under way."""

    def __init__(
        self,
        engine: Engine,
        background: FlushThreads,
        wall_ms: Callable[[], int],
        look_after: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._look_after = look_after  # on the loop, each time; what it raises ends the broker
        self._background = background
        self._wall_ms = wall_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="upkeep")
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        on_owner = _OnOwner(loop)
        try:
            while not self._stopping.is_set():
                self._background.check()  # raises what escaped from a flush
                for job in self._engine.due_jobs(self._wall_ms()):
                    await loop.run_in_executor(self._thread, job.run, on_owner)
                self._look_after()
                await self._pause()
        finally:
            self._thread.shutdown(wait=False)

    def stop(self) -> None:
        """`run` returns after the jobs that were due."""
        self._stopping.set()

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), EVERY_S)
        except TimeoutError:
            return


class _OnOwner:
    """Visits the loop from a job's thread and waits for the result."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, function: Callable[[], Result]) -> Result:
        result: Future[Result] = Future()
        self._loop.call_soon_threadsafe(_fulfil, result, function)
        while True:
            try:
                return result.result(timeout=1)
            except TimeoutError:
                if self._loop.is_closed():  # it will never come to this: the job ends here
                    raise


def _fulfil(result: "Future[Result]", function: Callable[[], Result]) -> None:
    try:
        value = function()
    except BaseException as error:  # it belongs to the job, which asked
        result.set_exception(error)
    else:
        result.set_result(value)
