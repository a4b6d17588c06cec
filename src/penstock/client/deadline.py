"""How long is left, and how long to wait before the next attempt."""

import time
from random import SystemRandom

from penstock.client.errors import ClientError, OutOfTime

# The program's own `random` is not touched from our threads: it may count on its numbers.
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
        """A little less: the broker's own "timed out" should arrive before we stop listening."""
        return self.left_ms - min(1_000, self.left_ms // 10)

    def out_of_time(self, what: str, last: ClientError) -> OutOfTime:
        error = OutOfTime(f"{what}: not done within {self._timeout_ms / 1000:g} s; last: {last}")
        error.__cause__ = last
        return error


def backoff_ms(failures: int, *, first_ms: int, most_ms: int) -> int:
    """Doubling with each failure in a row, up to `most_ms`, a fifth more or less by chance so that
    clients that failed together do not come back together."""
    if failures < 1:
        return 0
    # Far beyond any sensible `most_ms`; a larger exponent would only make large numbers.
    exact = min(most_ms, first_ms << min(failures - 1, 20))
    return round(exact * CHANCE.uniform(0.8, 1.2))
