"""LoopTimers on real event loops: order and never early, without upper bounds for busy machines."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.purgatory.delayed_operations import Purgatory
from penstock.purgatory.loop_timers import TIMERS_A_TURN, LoopTimers, TimersStopped, monotonic_ms


def run_with(scenario: Callable[[LoopTimers], Any], *, tick_ms: int = 1) -> LoopTimers:
    """Run the timers in a task group beside the scenario, which ends by stopping them."""

    async def main() -> LoopTimers:
        timers = LoopTimers(tick_ms=tick_ms)
        async with asyncio.TaskGroup() as group:
            group.create_task(timers.run(), name="timers")
            await asyncio.sleep(0)
            await scenario(timers)
        return timers

    return asyncio.run(main())


@pytest.mark.parametrize("tick_ms", [1, 5])
def test_timers_expire_in_order_and_never_before_their_deadline(tick_ms: int) -> None:
    expired: list[tuple[int, int]] = []

    async def scenario(timers: LoopTimers) -> None:
        start_ms = timers.now_ms()

        def expire(offset_ms: int) -> None:
            expired.append((offset_ms, timers.now_ms() - start_ms))

        # At least a tick apart, and not sorted.
        for offset_ms in (130, 106, 112, 136, 118, 124):
            timers.add(start_ms + offset_ms, partial(expire, offset_ms))
        timers.add(start_ms + 142, timers.stop)

    run_with(scenario, tick_ms=tick_ms)
    assert [offset_ms for offset_ms, _ in expired] == [106, 112, 118, 124, 130, 136]
    assert all(now_ms >= offset_ms for offset_ms, now_ms in expired)


def test_a_delay_is_never_shortened_by_the_current_millisecond() -> None:
    delays_s: list[float] = []

    async def scenario(timers: LoopTimers) -> None:
        for _ in range(20):
            done = asyncio.Event()
            started = time.monotonic()
            timers.add_after(2, done.set)
            await done.wait()
            delays_s.append(time.monotonic() - started)
        timers.stop()

    run_with(scenario)
    assert min(delays_s) >= 0.002


def test_earlier_timer_added_later_is_not_delayed_by_a_later_one() -> None:
    async def scenario(timers: LoopTimers) -> None:
        done = asyncio.Event()
        timers.add_after(3_600_000, lambda: pytest.fail("an hour has not passed"))
        timers.add_after(5, done.set)
        await done.wait()
        timers.stop()

    assert run_with(scenario).statistics().pending == 1


def test_timers_added_before_the_start_expire_after_it() -> None:
    async def main() -> None:
        timers = LoopTimers()
        timers.add(timers.now_ms() - 1000, timers.stop)
        await timers.run()

    asyncio.run(main())


def test_callbacks_may_add_and_cancel_timers() -> None:
    events: list[str] = []

    async def scenario(timers: LoopTimers) -> None:
        done = asyncio.Event()
        at_ms = timers.now_ms() + 5

        def first() -> None:
            events.append("first")
            assert timers.cancel(victim)
            timers.add(at_ms - 100, lambda: events.append("overdue"))
            timers.add_after(3, done.set)

        timers.add(at_ms, first)
        victim = timers.add(at_ms, lambda: events.append("victim"))
        await done.wait()
        timers.stop()

    run_with(scenario)
    assert events == ["first", "overdue"]


def test_exception_of_a_timer_ends_its_owner_and_the_task_group() -> None:
    async def scenario(timers: LoopTimers) -> None:
        def fail() -> None:
            raise ValueError("broken timer")

        timers.add_after(1, fail)
        timers.add_after(2, lambda: pytest.fail("nothing runs after the failure"))
        await asyncio.Event().wait()  # only the group's cancellation ends this

    with pytest.raises(ExceptionGroup) as raised:
        run_with(scenario)
    assert raised.group_contains(ValueError, match="broken timer")


@pytest.mark.parametrize("error", [asyncio.CancelledError(), StopIteration()])
def test_cancelled_error_of_a_timer_is_raised_as_runtime_error(error: Exception) -> None:
    async def scenario(timers: LoopTimers) -> None:
        def fail() -> None:
            raise error

        timers.add_after(1, fail)
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        run_with(scenario)
    assert raised.group_contains(RuntimeError)


def test_stopped_timers_refuse_new_ones_and_call_none() -> None:
    async def scenario(timers: LoopTimers) -> None:
        pending = timers.add_after(0, lambda: pytest.fail("stopped before it was due"))
        timers.stop()
        timers.stop()
        with pytest.raises(TimersStopped, match="stop what adds timers first"):
            timers.add_after(0, lambda: None)
        await asyncio.sleep(0.005)  # past its deadline
        assert timers.cancel(pending)

    run_with(scenario)


def test_stop_before_run_starts_lets_run_return() -> None:
    async def main() -> None:
        timers = LoopTimers()
        task = asyncio.create_task(timers.run())
        timers.stop()
        await task

    asyncio.run(main())


def test_no_callback_runs_after_one_that_stops_the_timers() -> None:
    called: list[str] = []

    async def main() -> None:
        timers = LoopTimers()
        past_ms = timers.now_ms() - 1
        timers.add(past_ms, timers.stop)
        timers.add(past_ms, lambda: called.append("after stop"))
        await timers.run()

    asyncio.run(main())
    assert called == []


def test_exception_is_raised_even_if_its_callback_stopped_the_timers() -> None:
    async def main() -> None:
        timers = LoopTimers()

        def stop_and_fail() -> None:
            timers.stop()
            raise ValueError("broken at the end")

        timers.add(timers.now_ms() - 1, stop_and_fail)
        await timers.run()

    with pytest.raises(ValueError, match="broken at the end"):
        asyncio.run(main())


def test_cancelled_owner_leaves_no_loop_timer() -> None:
    async def main() -> None:
        timers = LoopTimers()
        task = asyncio.create_task(timers.run())
        await asyncio.sleep(0)
        timers.add_after(1, lambda: pytest.fail("its owner was cancelled"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimersStopped):
            timers.add_after(1, lambda: None)
        await asyncio.sleep(0.005)

    asyncio.run(main())


def test_many_timers_expiring_at_once_do_not_starve_the_loop() -> None:
    crowd = TIMERS_A_TURN * 5
    turns = 0

    async def scenario(timers: LoopTimers) -> None:
        nonlocal turns
        done = asyncio.Event()
        count = 0

        def expire() -> None:
            nonlocal count
            count += 1
            if count == crowd:
                done.set()

        at_ms = timers.now_ms() + 1
        for _ in range(crowd):
            timers.add(at_ms, expire)
        while not done.is_set():
            await asyncio.sleep(0)
            turns += count > 0
        timers.stop()

    run_with(scenario)
    assert turns >= crowd / TIMERS_A_TURN - 1


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the loop timers that are set."""

    alarms = 0

    def call_later(self, *args: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.alarms += 1
        return super().call_later(*args, **options)


def test_one_loop_timer_serves_all_later_timers_and_an_idle_wheel_has_none() -> None:
    async def main(loop: CountingLoop) -> None:
        timers = LoopTimers()
        task = loop.create_task(timers.run())
        await asyncio.sleep(0)
        assert loop.alarms == 0
        soon_ms = timers.now_ms() + 60_000  # later than any stall of this process
        added = [timers.add(soon_ms + number, lambda: None) for number in range(1000)]
        assert loop.alarms == 1
        for timer in added:
            timers.cancel(timer)
        timers.add(soon_ms, lambda: None)
        assert loop.alarms == 1
        timers.stop()
        await task

    loop = CountingLoop()
    try:
        loop.run_until_complete(main(loop))
    finally:
        loop.close()


def test_delayed_operations_expire_on_a_real_loop() -> None:
    ended: list[str] = []

    class Never:
        def __init__(self, then: Callable[[], None]) -> None:
            self.then = then

        def is_satisfied(self) -> bool:
            return False

        def complete(self) -> None:
            ended.append("completed")

        def expire(self) -> None:
            ended.append("expired")
            self.then()

    async def scenario(timers: LoopTimers) -> None:
        done = asyncio.Event()
        operations: Purgatory[str] = Purgatory("produce", timers, max_operations=1, max_watches=1)
        deadline_ms = monotonic_ms() + 5
        operations.try_complete_else_watch(Never(done.set), ["a"], deadline_ms)
        await done.wait()
        assert monotonic_ms() >= deadline_ms
        assert operations.statistics().delayed == 0
        timers.stop()

    run_with(scenario)
    assert ended == ["expired"]
