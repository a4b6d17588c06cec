"""Deadlines of operations, and the back-off between attempts."""

import time
from random import SystemRandom

from penstock.client.errors import ClientError, OutOfTime

# Not the module `random`: a program that seeded it expects a reproducible sequence.
CHANCE = SystemRandom()


class Deadline:
    """A moment on the monotonic clock by which an operation must have ended."""

    __slots__ = ("_end", "_timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._end = time.monotonic() + timeout_ms / 1000

    @property
    def left_ms(self) -> int:
        return max(0, round((self._end - time.monotonic()) * 1000))

    @property
    def left_for_broker_ms(self) -> int:
        """A little less than is left, so that the broker's own timeout error arrives in time."""
        return self.left_ms - min(1_000, self.left_ms // 10)

    def out_of_time(self, what: str, last: ClientError) -> OutOfTime:
        error = OutOfTime(f"{what}: not done within {self._timeout_ms / 1000:g} s; last: {last}")
        error.__cause__ = last
        return error


def backoff_ms(failures: int, *, first_ms: int, most_ms: int) -> int:
    """Exponential in the number of consecutive failures, up to `most_ms`, with 20 % jitter so that
    clients that failed together do not retry together."""
    if failures < 1:
        return 0
    # Bounds the power of two; the result is far beyond any sensible `most_ms`.
    exact = min(most_ms, first_ms << min(failures - 1, 20))
    return round(exact * CHANCE.uniform(0.8, 1.2))
