"""Asks the tree while a broker starts: a lost connection is waited for, an ended session replaced.

Not for a broker that serves: the patience of `standing` has no end. Invariant: what is asked here
may be asked twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.metadata_store.errors import ConnectionLoss, SessionExpired

RETRY_PAUSE_S = 0.1

Answer = TypeVar("Answer")
OpenAnother = Callable[[], Awaitable[None]]  # a session, in place of one that has ended


async def ask_patiently(
    ask: Callable[[], Awaitable[Answer]], open_another: OpenAnother, *, patience_ms: int
) -> Answer:
    """ConnectionLost once the tree has been away for as long as that."""
    patience = _Patience(patience_ms)
    while True:
        try:
            return await ask()
        except ConnectionLoss as error:
            await patience.pause(error)
        except SessionExpired as error:
            await patience.pause(error)
            await patience.renew(error, open_another)


class _Patience:
    """What is left of it. A pause counts for what it was meant to be: a process that was frozen in
    it has not waited, and finds its session ended as a rule."""

    def __init__(self, whole_ms: int) -> None:
        self._whole_ms = whole_ms
        self._left_s = whole_ms / 1000

    async def pause(self, error: ConnectionLoss | SessionExpired) -> None:
        if self._left_s <= 0:
            raise self._give_up(error) from error
        await asyncio.sleep(RETRY_PAUSE_S)
        self._left_s -= RETRY_PAUSE_S

    async def renew(self, error: SessionExpired, open_another: OpenAnother) -> None:
        """Or not: whoever asks again is told so."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(max(self._left_s, RETRY_PAUSE_S)):
                await open_another()
        except TimeoutError:
            raise self._give_up(error) from error
        except ConnectionLoss:
            self._left_s -= loop.time() - began_s

    def _give_up(self, error: ConnectionLoss | SessionExpired) -> ConnectionLoss:
        if not self._whole_ms:
            return ConnectionLoss(str(error))
        return ConnectionLoss(
            f"the broker was starting and its tree went away for {self._whole_ms / 1000:g} s "
            f"({error}); start it again when ZooKeeper answers"
        )
