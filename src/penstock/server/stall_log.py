"""Logs stalls of the event loop with the stack that caused them, a few a minute.

Called on the watchdog's thread. Stalls while the broker starts are not logged: recovery and imports
are slow, and nobody is served.
"""

from collections.abc import Callable

from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import EventRateLimit
from penstock.server.watchdog import Stall

STALLS_A_MINUTE = 5


class StallLog:
    def __init__(self, logger: EventLogger, now_ms: Callable[[], int]) -> None:
        self._logger = logger
        self._now_ms = now_ms
        self._limit = EventRateLimit(per_peer=STALLS_A_MINUTE)
        self.threshold_ms: int | None = None  # None: nothing is logged yet

    def add(self, stall: Stall) -> None:
        if self.threshold_ms is None or stall.duration_ms < self.threshold_ms:
            return
        now_ms = self._now_ms()
        unlogged = sum(suppressed.events for suppressed in self._limit.take_suppressed(now_ms))
        if self._limit.admits("loop_stalled", "", now_ms):
            self._logger.warning(
                "loop_stalled",
                f"the event loop was busy for {stall.duration_ms:.0f} ms; its stack after "
                f"the first milliseconds:\n{stall.stack}",
                duration_ms=round(stall.duration_ms),
                unlogged_before=unlogged,
            )
