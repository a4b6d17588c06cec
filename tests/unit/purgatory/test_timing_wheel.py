import sys

import pytest

from penstock.purgatory.timing_wheel import TimingWheel


def make_wheel(*, tick_ms: int = 1, wheel_size: int = 4, start_ms: int = 0) -> TimingWheel[str]:
    return TimingWheel(start_ms=start_ms, tick_ms=tick_ms, wheel_size=wheel_size)


def expire(wheel: TimingWheel[str], now_ms: int) -> list[str]:
    return [timer.value for timer in wheel.advance_to(now_ms)]


def test_timer_expires_at_its_deadline_and_not_before() -> None:
    wheel = make_wheel()
    wheel.add(3, "a")
    assert expire(wheel, 2) == []
    assert expire(wheel, 3) == ["a"]
    assert expire(wheel, 4) == []


def test_coarse_tick_rounds_up_so_that_nothing_expires_early() -> None:
    wheel = make_wheel(tick_ms=10)
    for deadline_ms in (19, 20, 21):
        wheel.add(deadline_ms, str(deadline_ms))
    assert expire(wheel, 19) == []
    assert expire(wheel, 29) == ["19", "20"]
    assert expire(wheel, 30) == ["21"]


def test_timers_expire_in_tick_order_across_wheels() -> None:
    wheel = make_wheel()
    for deadline_ms in (200, 1, 17, 64, 3, 5, 2**62):
        wheel.add(deadline_ms, str(deadline_ms))
    assert expire(wheel, 1000) == ["1", "3", "5", "17", "64", "200"]
    assert expire(wheel, 2**62 - 1) == []
    assert expire(wheel, 2**62) == [str(2**62)]


def test_timer_with_a_deadline_in_the_past_expires_at_the_next_advance() -> None:
    wheel = make_wheel(start_ms=100)
    wheel.add(-5, "past")
    assert wheel.next_due_ms() == 100
    assert expire(wheel, 100) == ["past"]
    assert wheel.next_due_ms() is None


def test_overflow_wheels_are_created_when_needed() -> None:
    wheel = make_wheel()
    wheels = []
    for deadline_ms in (3, 4, 15, 16):
        wheel.add(deadline_ms, "")
        wheels.append(wheel.statistics().wheels)
    assert wheels == [1, 2, 2, 3]


def test_cancelled_timer_does_not_expire_and_is_freed_at_once() -> None:
    wheel = make_wheel()
    value = "only reference" + str(id(wheel))
    before = sys.getrefcount(value)
    timer = wheel.add(2, value)
    assert wheel.cancel(timer)
    assert len(wheel) == 0
    assert wheel.next_due_ms() is None
    del timer
    assert sys.getrefcount(value) == before
    assert expire(wheel, 10) == []


def test_cancel_returns_whether_the_timer_was_pending() -> None:
    wheel = make_wheel()
    timer = wheel.add(1, "a")
    expire(wheel, 1)
    assert not wheel.cancel(timer)
    other = wheel.add(5, "b")
    assert wheel.cancel(other)
    assert not wheel.cancel(other)


def test_due_timer_that_was_not_yielded_can_still_be_cancelled() -> None:
    wheel = make_wheel()
    first, second = wheel.add(1, "first"), wheel.add(1, "second")
    expired = wheel.advance_to(1)
    assert next(expired) is first
    assert wheel.cancel(second)
    assert list(expired) == []


def test_idle_wheel_and_emptied_buckets_need_no_wake_up() -> None:
    wheel = make_wheel()
    assert wheel.next_due_ms() is None
    soon, later = wheel.add(2, "soon"), wheel.add(3, "later")
    assert wheel.next_due_ms() == 2
    wheel.cancel(soon)
    assert wheel.next_due_ms() == 3
    wheel.cancel(later)
    assert wheel.next_due_ms() is None
    assert wheel.statistics().queued_buckets == 0


def test_delay_queue_holds_buckets_and_not_timers() -> None:
    wheel = make_wheel(wheel_size=8)
    for number in range(10_000):
        wheel.add(5 + number % 2, "")
    assert wheel.statistics().queued_buckets == 2


def test_far_timer_needs_one_wake_up_per_wheel_at_most() -> None:
    wheel = make_wheel(wheel_size=512)
    day_ms = 86_400_000
    wheel.add(day_ms + 12_345, "a")
    wake_ups = []
    while (due_ms := wheel.next_due_ms()) is not None:
        wake_ups.append(due_ms)
        expired = expire(wheel, due_ms)
    assert expired == ["a"]
    assert wake_ups[-1] == day_ms + 12_345
    assert len(wake_ups) <= wheel.statistics().wheels


def test_clock_that_goes_back_expires_nothing() -> None:
    wheel = make_wheel(start_ms=100)
    wheel.add(110, "a")
    assert expire(wheel, 50) == []
    wheel.add(105, "b")
    assert expire(wheel, 109) == ["b"]
    assert expire(wheel, 0) == []
    assert expire(wheel, 110) == ["a"]


def test_time_is_the_latest_advance() -> None:
    wheel = make_wheel()
    expire(wheel, 100)
    expire(wheel, 50)
    wheel.add(60, "a")
    assert wheel.next_due_ms() == 100
    assert expire(wheel, 50) == ["a"]


def test_many_timers_of_one_instant_expire_in_several_calls() -> None:
    wheel = make_wheel(wheel_size=8)
    for number in range(1000):
        wheel.add(100, str(number))
    turns = 0
    values: list[str] = []
    while (due_ms := wheel.next_due_ms()) is not None and due_ms <= 100:
        taken = [timer.value for timer in wheel.advance_to(100, at_most=50)]
        assert len(taken) <= 50
        values += taken
        turns += 1
    assert values == [str(number) for number in range(1000)]
    assert turns >= 1000 / 50


def test_wheel_that_kept_up_inserts_a_near_timer_into_the_lowest_wheel() -> None:
    wheel = make_wheel(wheel_size=512)
    wheel.keep_up(3_600_000)
    wheel.add(3_600_500, "fetch")
    assert wheel.statistics().wheels == 1
    assert wheel.next_due_ms() == 3_600_500


def test_keeping_up_does_not_skip_a_due_timer() -> None:
    wheel = make_wheel()
    wheel.add(5, "a")
    wheel.keep_up(50)
    assert expire(wheel, 50) == ["a"]


def test_invalid_ticks_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="tick of 0 ms"):
        make_wheel(tick_ms=0)
    for wheel_size in (0, 1, 20):
        with pytest.raises(ValueError, match=f"wheel of {wheel_size} slots"):
            make_wheel(wheel_size=wheel_size)
