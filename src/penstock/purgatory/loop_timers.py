"""Drives a timing wheel from an asyncio loop with one loop timer, set to the next expiration.

Not a scheduler of coroutines: a timer calls a function. Nothing polls. A function that raises ends
`run`, and with it the task group that owns it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.purgatory.timing_wheel import (
    TICK_MS,
    WHEEL_SIZE,
    Timer,
    TimingWheel,
    WheelStatistics,
)

Call = Callable[[], None]

TIMERS_A_TURN: Final = 1000  # about 1 ms, so that sockets get turns while a million timers expire


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class TimersStopped(Exception):
    """A timer was added after `run` had ended: it would never expire."""


class LoopTimers:
    """The timers of one event loop. Used from its thread only."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int] = monotonic_ms,
        tick_ms: int = TICK_MS,
        wheel_size: int = WHEEL_SIZE,
    ) -> None:
        self.now_ms = now_ms
        self._wheel: TimingWheel[Call] = TimingWheel(
            start_ms=now_ms(), tick_ms=tick_ms, wheel_size=wheel_size
        )
        self._loop: asyncio.AbstractEventLoop | None = None  # None: not running
        self._end: asyncio.Future[None] | None = None  # None: never ran
        self._error: BaseException | None = None  # raised by `run`
        self._is_stopped = False  # for good
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None  # at or before the wheel's next due time

    async def run(self) -> None:
        """Run until `stop`, or until a timer's function raises, and raise the same.

        Timers may be added before. Those pending at the end are never called.
        """
        assert self._end is None, "timers run once"
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        if self._is_stopped:  # before this task started
            return
        try:
            self._set_alarm()
            await self._end
        finally:
            self.stop()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """No timer expires any more, and `run` returns. Idempotent."""
        self._is_stopped = True
        self._clear_alarm()
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    def add(self, deadline_ms: int, value: Call) -> Timer[Call]:
        """Call `value` from the loop once `now_ms()` has reached the deadline."""
        if self._is_stopped:
            raise TimersStopped("the timers have stopped; stop what adds timers first")
        self._wheel.keep_up(self.now_ms())
        timer = self._wheel.add(deadline_ms, value)
        self._set_alarm()
        return timer

    def add_after(self, delay_ms: int, value: Call) -> Timer[Call]:
        """Call `value` after at least the delay: the current partial millisecond does not count."""
        return self.add(self.now_ms() + delay_ms + 1, value)

    def cancel(self, timer: Timer[Call]) -> bool:
        """False if it was called or cancelled before."""
        return self._wheel.cancel(timer)  # the alarm stays set; at worst it finds nothing due

    def statistics(self) -> WheelStatistics:
        return self._wheel.statistics()

    def _set_alarm(self) -> None:
        """Have the loop call us when the wheel's next timer is due."""
        due_ms = self._wheel.next_due_ms()
        if self._loop is None or self._is_stopped or due_ms is None:
            return
        if self._alarm_ms is not None and self._alarm_ms <= due_ms:
            return
        self._clear_alarm()
        # Relative: the loop's clock may differ from `now_ms`, and uvloop's time lags.
        delay_s = max(0, due_ms - self.now_ms()) / 1000
        self._alarm = self._loop.call_later(delay_s, self._on_alarm)
        self._alarm_ms = due_ms

    def _clear_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._alarm_ms = None

    def _on_alarm(self) -> None:
        try:
            self._expire_a_turn()
        except (KeyboardInterrupt, SystemExit):
            raise  # ends the event loop
        except BaseException as error:
            self._fail(error)
        else:
            self._clear_alarm()  # a function may have set another one
            self._set_alarm()

    def _expire_a_turn(self) -> None:
        for timer in self._wheel.advance_to(self.now_ms(), at_most=TIMERS_A_TURN):
            timer.value()
            if self._is_stopped:
                return

    def _fail(self, error: BaseException) -> None:
        """The loop would only log a callback's exception; `run` raises it instead."""
        # One would end `run` like a cancellation. The other would end it like a return: compiled
        # coroutines do not turn StopIteration into RuntimeError.
        if isinstance(error, asyncio.CancelledError | StopIteration):
            wrapped = RuntimeError(f"a timer's function raised {type(error).__name__}")
            wrapped.__cause__ = error
            error = wrapped
        self._error = error  # even if the function called `stop` before it raised
        self.stop()
