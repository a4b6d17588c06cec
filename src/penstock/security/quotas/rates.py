"""What was used of a quota, and how long to wait once it is exceeded. Pure: time is an argument.

A rate is counted in samples of a fixed length, of which the newest are kept, as in Kafka. A token
bucket is for changes of topics, which come in bursts; a paced rate for connections, which wait
instead of being answered.
"""

from collections import deque
from typing import NamedTuple


class RateWindow(NamedTuple):
    """`quota.window.num` samples of `quota.window.size.seconds`."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def total_ms(self) -> int:
        return self.samples * self.sample_ms


class WindowedRate:
    """Units a second. At least all samples but one count as elapsed, so that a client that has just
    come is not judged by its first millisecond."""

    __slots__ = ("_samples", "_total", "_window", "used_ms")

    def __init__(self, window: RateWindow) -> None:
        self._window = window
        self._samples: deque[list[float]] = deque()  # [start in ms, units], oldest first
        self._total = 0.0
        self.used_ms = 0  # when it was last recorded

    def record(self, units: float, now_ms: int) -> None:
        """Negative units take back what was recorded."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window.sample_ms:
            samples.append([now_ms, 0.0])
        samples[-1][1] += units
        self._total += units
        self.used_ms = now_ms
        self._forget_old(now_ms)

    def measure(self, now_ms: int) -> float:
        self._forget_old(now_ms)
        if not self._samples:
            return 0.0
        return max(self._total, 0.0) * 1000 / self.elapsed_ms(now_ms)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is of."""
        sample_ms = self._window.sample_ms
        elapsed_ms = now_ms - int(self._samples[0][0]) if self._samples else 0
        missing = self._window.samples - 1 - elapsed_ms // sample_ms
        return max(elapsed_ms + max(missing, 0) * sample_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long without use until the rate is the bound again; 0: it is not above it."""
        rate = self.measure(now_ms)
        if rate <= bound:
            return 0
        return round((rate - bound) / bound * self.elapsed_ms(now_ms))

    def _forget_old(self, now_ms: int) -> None:
        samples = self._samples
        oldest_ms = now_ms - self._window.total_ms
        while samples and samples[0][0] <= oldest_ms:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # without what rounding has left


class TokenBucket:
    """Gets `bound` tokens a second and holds those of a whole window. Whoever finds tokens may take
    more than there are; the next waits until there are some again."""

    __slots__ = ("_tokens", "_updated_ms", "_window", "used_ms")

    def __init__(self, window: RateWindow, bound: float, now_ms: int) -> None:
        self._window = window
        self._tokens = self._most(bound)
        self._updated_ms = self.used_ms = now_ms

    def try_take(self, count: float, bound: float, now_ms: int) -> bool:
        """Without tokens nothing is taken."""
        self._refill(bound, now_ms)
        if self._tokens < 0:
            return False
        self._tokens -= count
        return True

    def take(self, count: float, bound: float, now_ms: int) -> None:
        """Of somebody who cannot be refused, only be made to wait."""
        self._refill(bound, now_ms)
        self._tokens -= count

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        self._refill(bound, now_ms)
        return 0 if self._tokens >= 0 else round(-self._tokens / bound * 1000)

    def _refill(self, bound: float, now_ms: int) -> None:
        elapsed_s = max(now_ms - self._updated_ms, 0) / 1000
        self._tokens = min(self._tokens + elapsed_s * bound, self._most(bound))
        self._updated_ms = self.used_ms = now_ms

    def _most(self, bound: float) -> float:
        return bound * self._window.total_ms / 1000


class PacedRate:
    """When each of a series of arrivals may pass: at once while no more than a window's have, then
    one by one at the bound."""

    __slots__ = ("_next_ms", "used_ms")

    def __init__(self) -> None:
        self._next_ms = 0.0  # when the next passes if none may pass early
        self.used_ms = 0

    def delay_ms(self, bound: float, window: RateWindow, now_ms: int) -> int:
        """How long one arrival has to wait. More than a window: it must not wait, and is not
        counted."""
        self.used_ms = now_ms
        step_ms = 1000 / bound
        next_ms = max(self._next_ms, now_ms) + step_ms
        early_ms = max(window.total_ms, step_ms)
        delay_ms = max(round(next_ms - early_ms - now_ms), 0)
        if delay_ms <= window.total_ms:
            self._next_ms = next_ms
        return delay_ms
