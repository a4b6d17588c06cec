"""Imports modules in the background after a start, so that no later request waits for an import.

Not earlier, because a broker that is started for one test serves at once and is gone before this
begins. It runs on a thread with pauses: it takes a fifth of a core, and delays requests by 5 ms at
most.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import chain

from penstock.apis.preload import load_ahead

DELAY_S = 2.0
PAUSES_PER_STEP = 4
_LATER_MODULES = (
    "penstock.server.group_coordinator",
    "penstock.storage.compaction",
    "penstock.metrics.describe_metrics",
    "penstock.server.broker_statistics",
    "penstock.server.loop_monitor",
)


async def warm_up(steps: Iterator[None], *, delay_s: float = DELAY_S) -> None:
    """Run the steps one at a time."""
    await asyncio.sleep(delay_s)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="warm-up") as thread:
        is_done = False
        while not is_done:
            began_s = time.monotonic()
            is_done = await loop.run_in_executor(thread, next, steps, True) is True
            await asyncio.sleep(PAUSES_PER_STEP * (time.monotonic() - began_s))
    if gc.get_freeze_count():  # the broker has its own process: see `lean_start`
        gc.freeze()


def everything() -> Iterator[None]:
    return chain(_load_modules(), load_ahead())


def _load_modules() -> Iterator[None]:
    for name in _LATER_MODULES:
        import_module(name)
        yield
