"""The purgatory against a model that checks every operation after every change."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.profile import scaled

from penstock.purgatory.delayed_operations import Ending, Purgatory, WatchedOperation
from penstock.purgatory.timing_wheel import TimingWheel

SETTINGS = settings(
    max_examples=scaled(test=75, verify=1500, release=20_000),
    stateful_step_count=40,
    deadline=None,
)
KEYS = st.sets(st.integers(0, 4), max_size=4)


@dataclass(eq=False)
class CounterOperation:
    """Waits until its keys' counters sum up to a target, and raises another key when it ends."""

    counters: dict[int, int]
    keys: set[int]
    target: int
    deadline_ms: int
    on_end: Callable[[], None]
    ended: list[Ending] = field(default_factory=list)

    def is_satisfied(self) -> bool:
        return sum(self.counters[key] for key in self.keys) >= self.target

    def complete(self) -> None:
        self.ended.append(Ending.COMPLETED)
        self.on_end()

    def expire(self) -> None:
        self.ended.append(Ending.EXPIRED)
        self.on_end()


class PurgatoryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.wheel: TimingWheel[Callable[[], None]] = TimingWheel(start_ms=0, wheel_size=4)
        self.delayed: Purgatory[int] = Purgatory(
            "model", self.wheel, max_operations=1000, max_watches=10_000
        )
        self.now_ms = 0
        self.counters = dict.fromkeys(range(5), 0)
        self.all: list[tuple[CounterOperation, WatchedOperation[int]]] = []
        self.cancelled: set[int] = set()

    @rule(
        keys=KEYS,
        ahead=st.integers(0, 6),
        wait_ms=st.integers(-3, 60),
        raised=st.none() | st.integers(0, 4),
    )
    def wait(self, keys: set[int], ahead: int, wait_ms: int, raised: int | None) -> None:
        """Watch an operation that may be satisfied, expired or without keys from the start."""
        target = sum(self.counters[key] for key in keys) + ahead
        operation = CounterOperation(
            self.counters,
            keys,
            target,
            self.now_ms + wait_ms,
            lambda: None if raised is None else self.change(raised, 1),
        )
        self.all.append(
            (
                operation,
                self.delayed.try_complete_else_watch(operation, keys, operation.deadline_ms),
            )
        )

    @rule(key=st.integers(0, 4), by=st.integers(0, 3))
    def change(self, key: int, by: int) -> None:
        self.counters[key] += by
        self.delayed.check_and_complete(key)

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.all) - 1))
        operation, waiting = self.all[number]
        in_time = not operation.ended and number not in self.cancelled
        assert self.delayed.cancel(waiting) == in_time
        if in_time:
            self.cancelled.add(number)

    @rule(step_ms=st.integers(0, 40))
    def advance(self, step_ms: int) -> None:
        self.now_ms += step_ms
        for timer in self.wheel.advance_to(self.now_ms):
            timer.value()
        assert all(operation.deadline_ms > self.now_ms for operation in self.waiting())

    def waiting(self) -> list[CounterOperation]:
        return [
            operation
            for number, (operation, _) in enumerate(self.all)
            if not operation.ended and number not in self.cancelled
        ]

    @invariant()
    def each_ends_at_most_once_and_for_its_reason(self) -> None:
        for number, (operation, handle) in enumerate(self.all):
            assert len(operation.ended) + (number in self.cancelled) <= 1
            if operation.ended == [Ending.COMPLETED]:
                assert operation.is_satisfied()
            if operation.ended == [Ending.EXPIRED]:
                assert operation.deadline_ms <= self.now_ms
            endings = [Ending.CANCELLED] if number in self.cancelled else operation.ended
            assert handle.ending == next(iter(endings), None)

    @invariant()
    def nothing_that_could_complete_is_left_waiting(self) -> None:
        assert [operation for operation in self.waiting() if operation.is_satisfied()] == []

    @invariant()
    def only_the_waiting_are_kept(self) -> None:
        waiting = self.waiting()
        statistics = self.delayed.statistics()
        assert statistics.delayed == len(self.wheel) == len(waiting)
        assert statistics.watches == sum(len(operation.keys) for operation in waiting)
        assert statistics.watched_keys == len({key for reach in waiting for key in reach.keys})
        ended = statistics.completed_at_once + statistics.completed + statistics.expired
        assert ended + statistics.cancelled + statistics.delayed == len(self.all)


TestDelayed = PurgatoryMachine.TestCase
TestDelayed.settings = SETTINGS
