import gc
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from penstock.purgatory.delayed_operations import (
    Ending,
    Purgatory,
    PurgatoryFull,
    PurgatoryStatistics,
)
from penstock.purgatory.timing_wheel import TimingWheel


class PurgatoryHarness:
    """A timing wheel under a virtual clock, a purgatory on it, and the events of its operations."""

    def __init__(self, *, max_operations: int = 100, max_watches: int = 1000) -> None:
        self.wheel: TimingWheel[Callable[[], None]] = TimingWheel(start_ms=0)
        self.operations: Purgatory[str] = Purgatory(
            "fetch", self.wheel, max_operations=max_operations, max_watches=max_watches
        )
        self.bytes_of: dict[str, int] = {}
        self.events: list[str] = []

    def append(self, key: str, count: int = 1) -> None:
        self.bytes_of[key] = self.bytes_of.get(key, 0) + count
        self.operations.check_and_complete(key)

    def advance_to(self, now_ms: int) -> None:
        for timer in self.wheel.advance_to(now_ms):
            timer.value()

    def statistics(self) -> PurgatoryStatistics:
        return self.operations.statistics()


class WaitForBytes:
    def __init__(
        self,
        harness: PurgatoryHarness,
        name: str,
        keys: tuple[str, ...],
        min_bytes: int = 1,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self.harness = harness
        self.name = name
        self.keys = keys
        self.min_bytes = min_bytes
        self.then = then

    def is_satisfied(self) -> bool:
        return sum(self.harness.bytes_of.get(key, 0) for key in self.keys) >= self.min_bytes

    def complete(self) -> None:
        self.harness.events.append(f"{self.name} completed")
        self.then()

    def expire(self) -> None:
        self.harness.events.append(f"{self.name} expired")
        self.then()


def assert_nothing_is_kept(harness: PurgatoryHarness) -> None:
    statistics = harness.statistics()
    assert (statistics.delayed, statistics.watches, statistics.watched_keys) == (0, 0, 0)
    assert len(harness.wheel) == 0


def test_satisfied_operation_completes_at_once_and_is_never_watched() -> None:
    harness = PurgatoryHarness()
    harness.append("a")
    waiting = harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "f", ("a",)), ["a"], 10
    )
    assert waiting.ending is Ending.COMPLETED
    assert harness.events == ["f completed"]
    assert harness.statistics().completed_at_once == 1
    assert_nothing_is_kept(harness)


def test_operation_completes_when_its_keys_have_enough_bytes_together() -> None:
    harness = PurgatoryHarness()
    waiting = harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "f", ("a", "b"), 3), ["a", "b"], 10
    )
    harness.append("a", 2)
    assert waiting.ending is None
    assert harness.events == []
    harness.append("b", 1)
    assert harness.events == ["f completed"]
    assert_nothing_is_kept(harness)
    harness.append("a")
    harness.advance_to(100)
    assert harness.events == ["f completed"]


def test_several_changes_complete_operations_on_any_of_the_keys() -> None:
    harness = PurgatoryHarness()
    harness.operations.check_and_complete_all(["a", "b"])  # nothing is delayed yet
    for name in ("a", "b", "c"):
        harness.operations.try_complete_else_watch(
            WaitForBytes(harness, name, (name,)), (name,), 10
        )
    harness.bytes_of = {"a": 1, "b": 1, "c": 1}
    harness.operations.check_and_complete_all(["b", "a", "x"])
    assert harness.events == ["b completed", "a completed"]


def test_operation_expires_at_its_deadline_and_is_not_completed_after() -> None:
    harness = PurgatoryHarness()
    waiting = harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "f", ("a",)), ["a"], 10
    )
    harness.advance_to(9)
    assert harness.events == []
    harness.advance_to(10)
    assert waiting.ending is Ending.EXPIRED
    assert_nothing_is_kept(harness)
    harness.append("a")
    assert not harness.operations.try_complete(waiting)
    assert harness.events == ["f expired"]


def test_change_of_another_key_leaves_the_operation_delayed() -> None:
    harness = PurgatoryHarness()
    harness.operations.try_complete_else_watch(WaitForBytes(harness, "f", ("a", "b")), ["a"], 10)
    harness.append("b")  # satisfies it, but b is not watched
    assert harness.events == []
    harness.operations.check_and_complete("a")
    assert harness.events == ["f completed"]


def test_operations_of_a_key_complete_in_order_of_arrival() -> None:
    harness = PurgatoryHarness()
    for number in range(5):
        harness.operations.try_complete_else_watch(
            WaitForBytes(harness, str(number), ("a",)), ["a"], 10
        )
    harness.append("a")
    assert harness.events == [f"{number} completed" for number in range(5)]


def test_cancelled_operation_leaves_every_list_and_is_never_called() -> None:
    harness = PurgatoryHarness()
    waiting = harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "f", ("a", "b")), ["a", "b"], 10
    )
    assert harness.operations.cancel(waiting)
    assert_nothing_is_kept(harness)
    harness.append("a")
    harness.advance_to(100)
    assert not harness.operations.cancel(waiting)
    assert harness.events == []
    assert waiting.ending is Ending.CANCELLED


def test_finished_operation_is_freed_without_a_purge_or_garbage_collection() -> None:
    harness = PurgatoryHarness()
    operation = WaitForBytes(harness, "f", ("a",))
    freed = weakref.ref(operation)
    harness.operations.try_complete_else_watch(operation, ["a"], 10)
    harness.append("a")
    gc.disable()
    try:
        del operation
        assert freed() is None
    finally:
        gc.enable()


def test_key_named_twice_is_watched_once() -> None:
    harness = PurgatoryHarness()
    harness.operations.try_complete_else_watch(WaitForBytes(harness, "f", ("a",)), ["a", "a"], 10)
    assert harness.statistics().watches == 1
    harness.append("a")
    assert_nothing_is_kept(harness)


def test_operation_without_keys_waits_for_its_deadline_or_an_explicit_check() -> None:
    harness = PurgatoryHarness()
    tried = harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "tried", ("a",)), [], 10
    )
    harness.operations.try_complete_else_watch(WaitForBytes(harness, "left", ("b",)), [], 10)
    harness.append("a")
    assert harness.operations.try_complete(tried)
    harness.advance_to(10)
    assert harness.events == ["tried completed", "left expired"]


def test_full_purgatory_refuses_another_operation() -> None:
    harness = PurgatoryHarness(max_operations=2)
    for name in ("1", "2"):
        harness.operations.try_complete_else_watch(WaitForBytes(harness, name, ("a",)), ["a"], 10)
    with pytest.raises(
        PurgatoryFull, match=r"fetch purgatory: 3 operations.*at most 2.*raise the limit"
    ):
        harness.operations.try_complete_else_watch(WaitForBytes(harness, "3", ("a",)), ["a"], 10)
    assert harness.statistics().refused == 1
    assert len(harness.wheel) == 2
    harness.append("a")
    harness.operations.try_complete_else_watch(WaitForBytes(harness, "4", ("b",)), ["b"], 10)
    assert harness.events == ["1 completed", "2 completed"]


def test_watched_keys_are_bounded_too() -> None:
    harness = PurgatoryHarness(max_watches=3)
    harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "1", ("a", "b")), ["a", "b"], 10
    )
    with pytest.raises(PurgatoryFull, match="fetch purgatory: 4 watched keys"):
        harness.operations.try_complete_else_watch(
            WaitForBytes(harness, "2", ("a", "b")), ["a", "b"], 10
        )
    assert harness.statistics().watches == 2


def test_satisfied_operation_is_not_refused_by_a_full_purgatory() -> None:
    harness = PurgatoryHarness(max_operations=0)
    harness.append("a")
    waiting = harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "f", ("a",)), ["a"], 10
    )
    assert waiting.ending is Ending.COMPLETED


def test_a_long_chain_of_completions_does_not_recurse() -> None:
    length = 5000
    harness = PurgatoryHarness(max_operations=length, max_watches=length)
    for number in range(length):
        operation = WaitForBytes(
            harness,
            str(number),
            (f"k{number}",),
            then=partial(harness.append, f"k{number + 1}"),
        )
        harness.operations.try_complete_else_watch(operation, operation.keys, 10)
    harness.append("k0")
    assert harness.events == [f"{number} completed" for number in range(length)]
    assert_nothing_is_kept(harness)


def test_completion_may_cancel_the_next_operation_of_its_key() -> None:
    harness = PurgatoryHarness()
    operation = WaitForBytes(harness, "1", ("a",), then=lambda: harness.operations.cancel(second))
    harness.operations.try_complete_else_watch(operation, ["a"], 10)
    second = harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "2", ("a",)), ["a"], 10
    )
    harness.append("a")
    assert harness.events == ["1 completed"]


def test_completion_may_watch_the_same_key_again() -> None:
    harness = PurgatoryHarness()
    again = WaitForBytes(harness, "again", ("a",), min_bytes=2)
    first = WaitForBytes(
        harness,
        "first",
        ("a",),
        then=lambda: harness.operations.try_complete_else_watch(again, ["a"], 20),
    )
    harness.operations.try_complete_else_watch(first, ["a"], 10)
    harness.append("a")
    assert harness.statistics().delayed == 1
    harness.append("a")
    assert harness.events == ["first completed", "again completed"]


def test_completions_error_reaches_the_caller_and_later_checks_still_work() -> None:
    harness = PurgatoryHarness()

    def fail() -> None:
        raise OSError("disk on fire")

    harness.operations.try_complete_else_watch(
        WaitForBytes(harness, "bad", ("a",), then=fail), ["a"], 10
    )
    harness.operations.try_complete_else_watch(WaitForBytes(harness, "good", ("a",)), ["a"], 10)
    with pytest.raises(OSError, match="disk on fire"):
        harness.append("a")
    harness.operations.check_and_complete("a")
    assert harness.events == ["bad completed", "good completed"]


def test_expire_all_expires_every_operation_once() -> None:
    harness = PurgatoryHarness()
    for name in ("1", "2"):
        harness.operations.try_complete_else_watch(WaitForBytes(harness, name, ("a",)), ["a"], 10)
    harness.operations.expire_all()
    harness.advance_to(10)
    assert harness.events == ["1 expired", "2 expired"]
    assert_nothing_is_kept(harness)
