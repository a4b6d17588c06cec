"""Retries metadata store requests while a broker starts.

A lost connection is waited for, an expired session replaced. Not for a running broker:
`BrokerRegistration` retries without end. Invariant: a request made here may run twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.metadata_store.errors import ConnectionLoss, SessionExpired

RETRY_PAUSE_S = 0.1

Answer = TypeVar("Answer")
OpenSession = Callable[[], Awaitable[None]]  # replaces a session that has expired


async def retry_at_startup(
    ask: Callable[[], Awaitable[Answer]], open_session: OpenSession, *, timeout_ms: int
) -> Answer:
    """ConnectionLoss once the store has been unreachable for `timeout_ms`."""
    budget = _RetryBudget(timeout_ms)
    while True:
        try:
            return await ask()
        except ConnectionLoss as error:
            await budget.pause(error)
        except SessionExpired as error:
            await budget.pause(error)
            await budget.replace_session(error, open_session)


class _RetryBudget:
    """The time left for retries.

    A pause counts as its nominal length, because a process that was frozen during a pause has not
    waited for the store, and usually finds its session expired.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._left_s = timeout_ms / 1000

    async def pause(self, error: ConnectionLoss | SessionExpired) -> None:
        if self._left_s <= 0:
            raise self._give_up(error) from error
        await asyncio.sleep(RETRY_PAUSE_S)
        self._left_s -= RETRY_PAUSE_S

    async def replace_session(self, error: SessionExpired, open_session: OpenSession) -> None:
        """Try once; without a new session the next attempt fails the same way."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(max(self._left_s, RETRY_PAUSE_S)):
                await open_session()
        except TimeoutError:
            raise self._give_up(error) from error
        except ConnectionLoss:
            self._left_s -= loop.time() - began_s

    def _give_up(self, error: ConnectionLoss | SessionExpired) -> ConnectionLoss:
        if not self._timeout_ms:
            return ConnectionLoss(str(error))
        return ConnectionLoss(
            f"ZooKeeper was unreachable for {self._timeout_ms / 1000:g} s while the broker "
            f"started ({error}); start it again when ZooKeeper answers"
        )
