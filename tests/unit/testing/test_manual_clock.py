"""ManualClock: time and timers advance only on request."""

from penstock.testing import ManualClock


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(wall_start_ms=1000)
    assert (clock.now_ms(), clock.wall_ms()) == (0, 1000)
    clock.advance_ms(5)
    assert (clock.now_ms(), clock.wall_ms()) == (5, 1005)


def test_timers_that_are_due_run_within_advance_ms() -> None:
    clock = ManualClock()
    fired: list[tuple[str, int]] = []
    clock.advance_ms(10)
    clock.add(30, lambda: fired.append(("deadline", clock.now_ms())))
    clock.add_after(5, lambda: fired.append(("delay", clock.now_ms())))
    clock.advance_ms(4)
    assert fired == []
    clock.advance_ms(2)
    assert fired == [("delay", 16)]
    clock.advance_ms(20)
    assert fired == [("delay", 16), ("deadline", 36)]
    assert clock.pending == 0


def test_a_cancelled_timer_does_not_run() -> None:
    clock = ManualClock()
    fired: list[None] = []
    timer = clock.add_after(5, lambda: fired.append(None))
    assert clock.pending == 1
    assert clock.cancel(timer)
    clock.advance_ms(100)
    assert fired == []
