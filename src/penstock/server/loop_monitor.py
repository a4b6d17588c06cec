"""How busy the event loop is: the processor time of its thread, and the watchdog's stalls."""

from collections import deque

from penstock.metrics.statistics import LoopStatistics
from penstock.server.loop_times import LoopTimes, read_loop_times
from penstock.server.watchdog import Watchdog

WINDOW_S = 15.0
SPACING_S = 1.0  # between kept samples


class LoopMonitor:
    """Called on the loop's thread. The share is of the time since an earlier call, 15 s ago if
    calls are frequent; of the first call, since the start. A thread that waits for the disk or for
    the interpreter's lock counts as idle."""

    def __init__(self, watchdog: Watchdog, started: LoopTimes) -> None:
        self._watchdog = watchdog
        self._samples = deque([started])

    def statistics(self) -> LoopStatistics:
        now_s, busy_s = now = read_loop_times()
        samples = self._samples
        while len(samples) > 1 and now_s - samples[1][0] >= WINDOW_S:
            samples.popleft()
        then_s, earlier_s = samples[0]
        if now_s - samples[-1][0] >= SPACING_S:
            samples.append(now)
        watchdog = self._watchdog.statistics()
        return LoopStatistics(
            stalls=watchdog.stalls,
            longest_stall_ms=watchdog.longest_ms,
            stall_times=watchdog.durations,
            pauses=watchdog.pauses,
            paused_s=watchdog.paused_s,
            busy_share=min(1.0, (busy_s - earlier_s) / max(now_s - then_s, 1e-3)),
        )
