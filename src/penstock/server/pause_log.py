"""Logs pauses of the whole process: it was stopped, or its machine was frozen or suspended.

Called on the watchdog's thread, once the process runs again. A pause above the session's time-out
also expires the session; a shorter one leaves no other trace.
"""

from collections.abc import Callable

from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import EventRateLimit
from penstock.server.watchdog import Pause

PAUSES_A_MINUTE = 5


class PauseLog:
    def __init__(self, logger: EventLogger, now_ms: Callable[[], int]) -> None:
        self._logger = logger
        self._now_ms = now_ms
        self._limit = EventRateLimit(per_peer=PAUSES_A_MINUTE)
        self.threshold_ms: int | None = None  # None: nothing is logged yet

    def add(self, pause: Pause) -> None:
        if self.threshold_ms is None or pause.duration_ms < self.threshold_ms:
            return
        now_ms = self._now_ms()
        unlogged = sum(suppressed.events for suppressed in self._limit.take_suppressed(now_ms))
        if self._limit.admits("process_paused", "", now_ms):
            self._logger.warning(
                "process_paused",
                f"the whole process did not run for {pause.duration_ms / 1000:.1f} s: it was "
                "stopped, or its machine was frozen, suspended or out of memory",
                duration_ms=round(pause.duration_ms),
                unlogged_before=unlogged,
            )
