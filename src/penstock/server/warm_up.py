"""Loads, in the calm after a start, what requests and upkeep would otherwise wait for.

Not before: a broker that is started for one test serves its clients at once, and is gone before any
of this is paid for. On a thread and with pauses: it takes a fifth of a core, and who asks meanwhile
waits 5 ms at most.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import chain

from penstock.apis.preload import load_ahead

CALM_S = 2.0
PAUSES_PER_STEP = 4
_LATER_MODULES = ("penstock.server.group_coordinator", "penstock.storage.compaction")


async def warm_up(steps: Iterator[None], *, calm_s: float = CALM_S) -> None:
    """Goes through the steps, one at a time."""
    await asyncio.sleep(calm_s)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="warm-up") as thread:
        is_done = False
        while not is_done:
            began_s = time.monotonic()
            is_done = await loop.run_in_executor(thread, next, steps, True) is True
            await asyncio.sleep(PAUSES_PER_STEP * (time.monotonic() - began_s))
    if gc.get_freeze_count():  # a process of the broker's own: see `lean_start`
        gc.freeze()


def everything() -> Iterator[None]:
    return chain(_load_modules(), load_ahead())


def _load_modules() -> Iterator[None]:
    for name in _LATER_MODULES:
        import_module(name)
        yield
