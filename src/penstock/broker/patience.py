"""Asks the tree while a broker starts: a lost connection is waited for, an ended session replaced.

Not for a broker that serves: the patience of `standing` has no end. Invariant: what is asked here
may be asked twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.coordination.errors import ConnectionLost, SessionExpired

RETRY_PAUSE_S = 0.1

Answer = TypeVar("Answer")


async def ask_patiently(
    ask: Callable[[], Awaitable[Answer]],
    open_another: Callable[[], Awaitable[None]],
    *,
    patience_ms: int,
) -> Answer:
    """ConnectionLost once the tree has been away for as long as that. `open_another`: a session, in
    place of one that has ended."""
    loop = asyncio.get_running_loop()
    deadline_s: float | None = None
    while True:
        try:
            return await ask()
        except (ConnectionLost, SessionExpired) as error:
            deadline_s = deadline_s or loop.time() + patience_ms / 1000
            try:
                async with asyncio.timeout_at(deadline_s):
                    await _wait_after(error, open_another)
            except TimeoutError:
                raise _give_up(error, patience_ms) from error


async def _wait_after(
    error: ConnectionLost | SessionExpired, open_another: Callable[[], Awaitable[None]]
) -> None:
    await asyncio.sleep(RETRY_PAUSE_S)
    while isinstance(error, SessionExpired):
        try:
            await open_another()
        except ConnectionLost:
            await asyncio.sleep(RETRY_PAUSE_S)
        else:
            return


def _give_up(error: ConnectionLost | SessionExpired, patience_ms: int) -> ConnectionLost:
    if not patience_ms:
        return ConnectionLost(str(error))
    return ConnectionLost(
        f"the broker was starting and its tree went away for {patience_ms / 1000:g} s ({error}); "
        f"start it again when ZooKeeper answers"
    )
