"""Histograms with fixed buckets, of durations and of sizes: an observation is a bisection and two
additions.

No locks and no clock: its owner observes, others read snapshots.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

_STEPS: Final = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
# Upper bounds in seconds, inclusive: 10 µs to 70 s. A quantile is off by a third at most.
BOUNDS_S: Final[tuple[float, ...]] = tuple(
    round(step * 10.0**power, 9) for power in range(-5, 2) for step in _STEPS
)


class DurationsSnapshot(NamedTuple):
    counts: tuple[int, ...]  # by bucket; the last has no upper bound
    sum_s: float

    @property
    def total(self) -> int:
        return sum(self.counts)

    def plus(self, other: "DurationsSnapshot") -> "DurationsSnapshot":
        counts = tuple(map(int.__add__, self.counts, other.counts))
        return DurationsSnapshot(counts, self.sum_s + other.sum_s)

    def minus(self, earlier: "DurationsSnapshot") -> "DurationsSnapshot":
        """What was observed since the earlier snapshot of the same histogram."""
        counts = tuple(map(int.__sub__, self.counts, earlier.counts))
        return DurationsSnapshot(counts, self.sum_s - earlier.sum_s)

    def quantile_s(self, quantile: float) -> float:
        """Interpolated within its bucket; 0 if nothing was observed."""
        rank = quantile * self.total
        below = 0
        for index, count in enumerate(self.counts):
            if count and below + count >= rank:
                lower = BOUNDS_S[index - 1] if index else 0.0
                upper = BOUNDS_S[index] if index < len(BOUNDS_S) else lower
                return lower + (upper - lower) * (rank - below) / count
            below += count
        return 0.0


NO_DURATIONS: Final = DurationsSnapshot((0,) * (len(BOUNDS_S) + 1), 0.0)


class DurationHistogram:
    """Owned by the event loop's thread. The fields are public for an owner that observes in every
    request: a call costs more than the observation."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)  # by bucket; the last has no upper bound
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def snapshot(self) -> DurationsSnapshot:
        return DurationsSnapshot(tuple(self.counts), self.sum_s)


class SizesSnapshot(NamedTuple):
    bounds: tuple[int, ...]  # upper bounds, inclusive
    counts: tuple[int, ...]  # by bucket; the last has no upper bound
    sum: int

    @property
    def total(self) -> int:
        return sum(self.counts)


class SizeHistogram:
    """Of numbers of things or bytes, with bounds of its own. Owned by the thread that observes."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0

    def observe(self, size: int) -> None:
        self._counts[bisect_left(self._bounds, size)] += 1
        self._sum += size

    def snapshot(self) -> SizesSnapshot:
        return SizesSnapshot(self._bounds, tuple(self._counts), self._sum)
