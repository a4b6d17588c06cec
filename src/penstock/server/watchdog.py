"""Watches the event loop from a thread and records stalls with the stack that caused them.

It checks every 50 ms, so that a stall of 55 ms is always seen and a shorter one by chance. A pause
of the whole process stops this thread too: its own waits then end late, and that is recorded as a
pause and not as a stall.
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
PAUSE_S = 1.0  # a wait that ends later than this; loaded machines delay a thread by less
BUSY_SHARE = 0.5  # of a late wait: above it the process ran, and only this thread did not
# Counts while the machine is suspended, where the system has such a clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Pause(NamedTuple):
    at_ms: int  # wall clock, when it was noticed
    duration_ms: float  # at least: the pause may have begun up to a wait of the watchdog earlier


class Stall(NamedTuple):
    at_ms: int  # wall clock, when it began or was noticed
    duration_ms: float
    stack: str  # of the loop's thread during the stall; empty for a short one soon after another


class WatchdogStatistics(NamedTuple):
    stalls: int
    longest_ms: float
    recent: tuple[Stall, ...]
    durations: DurationsSnapshot = NO_DURATIONS
    pauses: int = 0  # of the whole process
    paused_s: float = 0.0  # all of them together


class Watchdog:
    """Start and stop it on the loop that it watches."""

    def __init__(
        self,
        *,
        stall_ms: float = STALL_MS,
        check_every_ms: float = CHECK_EVERY_MS,
        pause_s: float = PAUSE_S,
        on_stall: Callable[["Stall"], None] = lambda stall: None,
        on_pause: Callable[["Pause"], None] = lambda pause: None,
    ) -> None:
        self._stall_s = stall_ms / 1000
        self._check_every_s = check_every_ms / 1000
        self._least_pause_s = pause_s
        self._on_stall = on_stall  # called on the watchdog's thread
        self._on_pause = on_pause  # likewise
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stalls = 0
        self._longest_ms = 0.0
        self._durations = DurationHistogram()
        self._recent: deque[Stall] = deque(maxlen=KEPT_STALLS)
        self._pauses = 0
        self._paused_s = 0.0

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
                pauses=self._pauses,
                paused_s=self._paused_s,
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
        while not self._wait(self._stop, self._check_every_s):
            answered = threading.Event()
            started_s, paused_before_s = _now_s(), self._paused_s
            try:
                post(answered.set)
            except RuntimeError:
                return  # the loop is closed
            if self._wait(answered, self._stall_s):
                continue
            stack = ""
            if started_s - read_s >= STACK_EVERY_S or not self._wait(answered, LONG_STALL_S):
                stack, read_s = stacks.read(owner), started_s
            while not self._wait(answered, self._check_every_s):  # a longer wait would hide a pause
                if self._stop.is_set():
                    return
            stalled_s = _now_s() - started_s - (self._paused_s - paused_before_s)
            if stalled_s >= self._stall_s:
                self._record(stalled_s * 1000, stack)

    def _wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait, and record a pause if the wait ends much later than it should."""
        began_s, began_cpu_s = _now_s(), time.process_time()
        is_set = event.wait(timeout_s)
        late_s = _now_s() - began_s - timeout_s
        busy_s = time.process_time() - began_cpu_s
        if is_pause(late_s, busy_s, least_s=self._least_pause_s):
            self._record_pause(late_s)
        return is_set

    def _record_pause(self, paused_s: float) -> None:
        with self._lock:
            self._pauses += 1
            self._paused_s += paused_s
        self._on_pause(Pause(at_ms=int(time.time() * 1000), duration_ms=paused_s * 1000))

    def _record(self, duration_ms: float, stack: str) -> None:
        at_ms = int(time.time() * 1000 - duration_ms)
        stall = Stall(at_ms=at_ms, duration_ms=duration_ms, stack=stack)
        with self._lock:
            self._stalls += 1
            self._durations.observe(duration_ms / 1000)
            self._longest_ms = max(self._longest_ms, duration_ms)
            self._recent.append(stall)
        self._on_stall(stall)


def is_pause(late_s: float, busy_s: float, *, least_s: float) -> bool:
    """Whether a wait that ended so late is a pause. `busy_s`: processor time of the process
    meanwhile; a call that holds the interpreter's lock delays the watchdog too, but computes."""
    return late_s >= least_s and busy_s < late_s * BUSY_SHARE


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)
