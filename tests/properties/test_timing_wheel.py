"""The timing wheel against a plain table of deadlines, for any order of calls and any clock."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.profile import scaled

from penstock.purgatory.timing_wheel import Timer, TimingWheel

SETTINGS = settings(
    max_examples=scaled(test=100, verify=1000, release=30_000),
    stateful_step_count=40,
    deadline=None,
)
HUGE = 2**62
STEPS_MS = st.integers(0, 5) | st.integers(0, 300) | st.integers(0, 10**7) | st.just(HUGE)
DEADLINES_MS = STEPS_MS | st.integers(-500, -1)  # relative to now


class Wheel(RuleBasedStateMachine):
    """`pending` is the model. Time is the furthest ever told, since clocks may go back."""

    @initialize(
        tick_ms=st.sampled_from([1, 3, 10]),
        wheel_size=st.sampled_from([2, 4, 64, 512]),
        start_ms=st.sampled_from([0, -17, 1_800_000_000_123]),
    )
    def start(self, tick_ms: int, wheel_size: int, start_ms: int) -> None:
        self.wheel: TimingWheel[int] = TimingWheel(
            start_ms=start_ms, tick_ms=tick_ms, wheel_size=wheel_size
        )
        self.tick_ms = tick_ms
        self.now_ms = start_ms
        self.timers: list[Timer[int]] = []  # indexed by value
        self.pending: dict[int, int] = {}  # the tick at which each timer is due
        self.late: set[int] = set()  # already due when they were added, so they expire in any order
        self.expired = self.cancelled = 0

    @rule(from_now_ms=DEADLINES_MS, count=st.just(1) | st.integers(2, 40))
    def add(self, from_now_ms: int, count: int) -> None:
        for _ in range(count):
            deadline_ms = self.now_ms + from_now_ms
            number = len(self.timers)
            self.timers.append(self.wheel.add(deadline_ms, number))
            self.pending[number] = -(-deadline_ms // self.tick_ms)
            if self.pending[number] <= self.now_ms // self.tick_ms:
                self.late.add(number)

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.timers) - 1))
        was_pending = self.pending.pop(number, None) is not None
        self.cancelled += was_pending
        assert self.wheel.cancel(self.timers[number]) == was_pending
        assert not self.timers[number].is_pending

    @rule(seed=st.integers(0, 2**32))
    def cancel_most(self, seed: int) -> None:
        for number in random.Random(seed).sample(sorted(self.pending), len(self.pending) * 4 // 5):
            del self.pending[number]
            self.cancelled += 1
            assert self.wheel.cancel(self.timers[number])

    @rule(step_ms=STEPS_MS)
    def advance(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.take(list(self.wheel.advance_to(self.now_ms)))
        self.assert_nothing_is_due()

    @precondition(lambda self: self.pending)
    @rule(extra_ms=st.integers(-1, 1))
    def advance_to_the_next_deadline(self, extra_ms: int) -> None:
        at_ms = min(self.pending.values()) * self.tick_ms + extra_ms
        self.advance(max(0, at_ms - self.now_ms))

    @rule(step_ms=STEPS_MS, at_most=st.integers(0, 7))
    def advance_in_turns(self, step_ms: int, at_most: int) -> None:
        """A turn that is cut off, and others in between: the rest stays due."""
        self.now_ms += step_ms
        taken = list(self.wheel.advance_to(self.now_ms, at_most=at_most))
        assert len(taken) <= at_most
        self.take(taken)

    @rule(back_ms=STEPS_MS)
    def clock_goes_back(self, back_ms: int) -> None:
        """What is due stays due; nothing becomes due."""
        self.advance(0)  # because a clock can only go back from a time that the wheel has seen
        self.take(list(self.wheel.advance_to(self.now_ms - back_ms)))
        self.assert_nothing_is_due()

    @rule(step_ms=STEPS_MS)
    def drive_by_next_due(self, step_ms: int) -> None:
        """As a loop does: called at the times that the wheel asks for, and at no other."""
        end_ms = self.now_ms + step_ms
        while (due_ms := self.wheel.next_due_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(list(self.wheel.advance_to(self.now_ms)))
        self.now_ms = end_ms
        self.assert_nothing_is_due()

    @rule(step_ms=STEPS_MS)
    def keep_up(self, step_ms: int) -> None:
        due_ms = self.wheel.next_due_ms()
        self.wheel.keep_up(self.now_ms + step_ms)
        if due_ms is None or due_ms > self.now_ms + step_ms:
            self.now_ms += step_ms

    @rule(step_ms=STEPS_MS, from_now_ms=DEADLINES_MS, stop_after=st.integers(0, 20))
    def add_and_cancel_while_iterating(
        self, step_ms: int, from_now_ms: int, stop_after: int
    ) -> None:
        self.now_ms += step_ms
        for count, timer in enumerate(self.wheel.advance_to(self.now_ms)):
            self.take([timer])
            if count == stop_after:
                break
            if count % 2:
                self.add(from_now_ms, 1)
            elif self.pending:
                number = max(self.pending)
                del self.pending[number]
                self.cancelled += 1
                assert self.wheel.cancel(self.timers[number])

    @rule(step_ms=STEPS_MS, more_ms=STEPS_MS)
    def advance_within_advance(self, step_ms: int, more_ms: int) -> None:
        self.now_ms += step_ms
        for timer in self.wheel.advance_to(self.now_ms):
            self.take([timer])
            self.advance(more_ms)
            self.add(1, 2)

    def take(self, timers: list[Timer[int]]) -> None:
        """Each once, none early, in order of its tick."""
        ticks = [(self.pending.pop(timer.value), timer.value) for timer in timers]
        assert all(tick <= self.now_ms // self.tick_ms for tick, _ in ticks)
        assert all(tick * self.tick_ms >= self.timers[number].deadline_ms for tick, number in ticks)
        in_order = [tick for tick, number in ticks if number not in self.late]
        assert in_order == sorted(in_order)
        assert not any(timer.is_pending for timer in timers)
        self.expired += len(timers)

    def assert_nothing_is_due(self) -> None:
        now_tick = self.now_ms // self.tick_ms
        assert [number for number, tick in self.pending.items() if tick <= now_tick] == []

    @invariant()
    def next_due_is_never_after_a_deadline(self) -> None:
        due_ms = self.wheel.next_due_ms()
        assert (due_ms is None) == (not self.pending)
        if due_ms is not None:
            now_tick = self.now_ms // self.tick_ms
            first_ms = max(now_tick, min(self.pending.values())) * self.tick_ms
            assert due_ms <= first_ms

    @invariant()
    def statistics_add_up(self) -> None:
        statistics = self.wheel.statistics()
        assert statistics.pending == len(self.wheel) == len(self.pending)
        assert statistics.added == len(self.timers)
        assert statistics.expired == self.expired
        assert statistics.cancelled == self.cancelled


TestWheel = Wheel.TestCase
TestWheel.settings = SETTINGS
