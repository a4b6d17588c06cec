"""Watches the event loop from a thread and records stalls with the stack that caused them.

It checks every 50 ms, so that a stall of 55 ms is always seen and a shorter one by chance.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.model.histogram import NO_DURATIONS, DurationHistogram, DurationsSnapshot
from penstock.server.thread_stack import ThreadStacks

STALL_MS = 5
CHECK_EVERY_MS = 50
KEPT_STALLS = 32
STACK_EVERY_S = 1.0  # of short stalls; each long one has its stack
LONG_STALL_S = 0.05


class Stall(NamedTuple):
    at_ms: int  # wall clock, when it began or was noticed
    duration_ms: float
    stack: str  # of the loop's thread during the stall; empty for a short one soon after another


class WatchdogStatistics(NamedTuple):
    stalls: int
    longest_ms: float
    recent: tuple[Stall, ...]
    durations: DurationsSnapshot = NO_DURATIONS


class Watchdog:
    """Start and stop it on the loop that it watches."""

    def __init__(
        self,
        *,
        stall_ms: float = STALL_MS,
        check_every_ms: float = CHECK_EVERY_MS,
        on_stall: Callable[["Stall"], None] = lambda stall: None,
    ) -> None:
        self._stall_s = stall_ms / 1000
        self._pause_s = check_every_ms / 1000
        self._on_stall = on_stall  # called on the watchdog's thread
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stalls = 0
        self._longest_ms = 0.0
        self._durations = DurationHistogram()
        self._recent: deque[Stall] = deque(maxlen=KEPT_STALLS)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        owner = threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch,
            args=(loop.call_soon_threadsafe, owner),
            name="watchdog",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def statistics(self) -> WatchdogStatistics:
        with self._lock:
            return WatchdogStatistics(
                stalls=self._stalls,
                longest_ms=self._longest_ms,
                recent=tuple(self._recent),
                durations=self._durations.snapshot(),
            )

    def _watch(self, post: Callable[[Callable[[], None]], object], owner: int) -> None:
        stacks = ThreadStacks()
        try:
            self._watch_with(stacks, post, owner)
        finally:
            stacks.close()

    def _watch_with(
        self, stacks: ThreadStacks, post: Callable[[Callable[[], None]], object], owner: int
    ) -> None:
        read_s = -STACK_EVERY_S  # when the last stack was read, which costs milliseconds itself
        while not self._stop.wait(self._pause_s):
            answered = threading.Event()
            started = time.monotonic()
            try:
                post(answered.set)
            except RuntimeError:
                return  # the loop is closed
            if answered.wait(self._stall_s):
                continue
            stack = ""
            if started - read_s >= STACK_EVERY_S or not answered.wait(LONG_STALL_S):
                stack, read_s = stacks.read(owner), started
            while not answered.wait(1.0):
                if self._stop.is_set():
                    return
            self._record((time.monotonic() - started) * 1000, stack)

    def _record(self, duration_ms: float, stack: str) -> None:
        at_ms = int(time.time() * 1000 - duration_ms)
        stall = Stall(at_ms=at_ms, duration_ms=duration_ms, stack=stack)
        with self._lock:
            self._stalls += 1
            self._durations.observe(duration_ms / 1000)
            self._longest_ms = max(self._longest_ms, duration_ms)
            self._recent.append(stall)
        self._on_stall(stall)
