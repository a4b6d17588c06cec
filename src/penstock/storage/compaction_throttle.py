"""Limits the I/O of compaction (log.cleaner.io.max.bytes.per.second)."""

from collections.abc import Callable
from math import inf
from time import monotonic, sleep

_SHORTEST_PAUSE_S = 0.01  # shorter pauses are added up


class CleanerThrottler:
    """Bounds the bytes read and written per second, over all jobs that share it."""

    def __init__(
        self,
        bytes_per_second: float = inf,
        *,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._pause = pause
        self._free_at = -inf  # when the bytes spent so far are within the limit

    def spend(self, count: int) -> None:
        if self._bytes_per_second == inf:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._bytes_per_second
        if self._free_at - now >= _SHORTEST_PAUSE_S:
            self._pause(self._free_at - now)
