"""An event loop on a thread of its own, for programs that are not asynchronous.

It is for the process that made it: a forked child must not touch it, because the child has the
loop's sockets and not its thread.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from penstock.client.errors import ClientClosed

_Result = TypeVar("_Result")
_STOP_TIMEOUT_S = 5.0


class LoopThread:
    """Runs until it is stopped."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Awaitable[_Result]]) -> "Future[_Result]":
        assert threading.current_thread() is not self._thread, "would deadlock"

        async def operate() -> _Result:
            return await work()

        coroutine = operate()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise ClientClosed("the connections of this process were closed") from None

    def stop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._loop.stop)
        except RuntimeError:
            return  # stopped already
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_remaining())
        finally:
            self._loop.close()


async def _cancel_remaining() -> None:
    """Cancels running tasks, so that their callers do not wait forever."""
    remaining = asyncio.all_tasks() - {asyncio.current_task()}
    for task in remaining:
        task.cancel()
    await asyncio.gather(*remaining, return_exceptions=True)
