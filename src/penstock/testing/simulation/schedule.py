"""Virtual time: a queue of scheduled actions, and the clocks of brokers.

Nothing here waits. Actions of the same millisecond run in the order in which they were scheduled,
so that a seed replays exactly.
"""

import heapq
from collections.abc import Callable

from penstock.purgatory.timing_wheel import Timer, TimingWheel

Action = Callable[[], None]

WALL_MS = 1_700_000_000_000  # of virtual time 0


class Schedule:
    def __init__(self) -> None:
        self.now_ms = 0
        self.events = 0  # run so far
        self._scheduled: list[tuple[int, int, Action]] = []
        self._count = 0

    def after(self, delay_ms: int, action: Action) -> None:
        self._count += 1
        heapq.heappush(self._scheduled, (self.now_ms + max(0, delay_ms), self._count, action))

    def run_until(self, end_ms: int) -> None:
        """Run everything scheduled up to then, including what that schedules."""
        while self._scheduled and self._scheduled[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._scheduled)
            self.events += 1
            action()
        self.now_ms = end_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms


class BrokerClock:
    """A broker's `replication.Clock`; timers go through `run`, which respects pauses and
    crashes."""

    def __init__(self, schedule: Schedule, run: Callable[[Action], None]) -> None:
        self._schedule = schedule
        self._run = run
        self._wheel: TimingWheel[Action] = TimingWheel(start_ms=schedule.now_ms)

    def now_ms(self) -> int:
        return self._schedule.now_ms

    def add(self, deadline_ms: int, value: Action) -> Timer[Action]:
        timer = self._wheel.add(deadline_ms, value)
        self._schedule.after(deadline_ms - self._schedule.now_ms, lambda: self._run(self._tick))
        return timer

    def cancel(self, timer: Timer[Action]) -> bool:
        return self._wheel.cancel(timer)

    def _tick(self) -> None:
        for timer in self._wheel.advance_to(self._schedule.now_ms):
            timer.value()
