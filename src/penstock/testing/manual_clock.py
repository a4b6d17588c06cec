"""A clock and its timers for tests: time passes only in `advance_ms`.

Not a source of real time and not thread-safe. Every timer that is due runs within `advance_ms`,
so that a test sees all of its effects when the call returns.
"""

from collections.abc import Callable

from penstock.purgatory.timing_wheel import Timer, TimingWheel

WALL_START_MS = 1_700_000_000_000

Call = Callable[[], None]


class ManualClock:
    """Monotonic clock from 0, wall clock from `wall_start_ms`, and timers on the first."""

    def __init__(self, *, wall_start_ms: int = WALL_START_MS) -> None:
        self._now_ms = 0
        self._wall_start_ms = wall_start_ms
        self._wheel: TimingWheel[Call] = TimingWheel(start_ms=0)

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._wall_start_ms + self._now_ms

    def add(self, deadline_ms: int, value: Call) -> Timer[Call]:
        return self._wheel.add(deadline_ms, value)

    def add_after(self, delay_ms: int, value: Call) -> Timer[Call]:
        return self._wheel.add(self._now_ms + delay_ms, value)

    def cancel(self, timer: Timer[Call]) -> bool:
        return self._wheel.cancel(timer)

    def advance_ms(self, duration_ms: int) -> None:
        """Timers see the time after the step, also those that were due before its end."""
        self._now_ms += duration_ms
        for timer in self._wheel.advance_to(self._now_ms):
            timer.value()

    @property
    def pending(self) -> int:
        return self._wheel.statistics().pending
