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


class World:
    """A wheel under a virtual clock, the waiting operations on it, and what happened."""

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
        world: World,
        name: str,
        keys: tuple[str, ...],
        min_bytes: int = 1,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self.world = world
        self.name = name
        self.keys = keys
        self.min_bytes = min_bytes
        self.then = then

    def is_satisfied(self) -> bool:
        return sum(self.world.bytes_of.get(key, 0) for key in self.keys) >= self.min_bytes

    def complete(self) -> None:
        self.world.events.append(f"{self.name} completed")
        self.then()

    def expire(self) -> None:
        self.world.events.append(f"{self.name} expired")
        self.then()


def assert_nothing_is_kept(world: World) -> None:
    statistics = world.statistics()
    assert (statistics.delayed, statistics.watches, statistics.watched_keys) == (0, 0, 0)
    assert len(world.wheel) == 0


def test_satisfied_operation_completes_at_once_and_is_never_watched() -> None:
    world = World()
    world.append("a")
    waiting = world.operations.try_complete_else_watch(WaitForBytes(world, "f", ("a",)), ["a"], 10)
    assert waiting.ending is Ending.COMPLETED
    assert world.events == ["f completed"]
    assert world.statistics().completed_at_once == 1
    assert_nothing_is_kept(world)


def test_operation_completes_when_enough_changed_on_any_of_its_keys() -> None:
    world = World()
    waiting = world.operations.try_complete_else_watch(
        WaitForBytes(world, "f", ("a", "b"), 3), ["a", "b"], 10
    )
    world.append("a", 2)
    assert waiting.ending is None
    assert world.events == []
    world.append("b", 1)
    assert world.events == ["f completed"]
    assert_nothing_is_kept(world)
    world.append("a")
    world.advance_to(100)
    assert world.events == ["f completed"]


def test_several_changes_complete_operations_on_any_of_the_keys() -> None:
    world = World()
    world.operations.check_and_complete_all(["a", "b"])  # nobody waits yet
    for name in ("a", "b", "c"):
        world.operations.try_complete_else_watch(WaitForBytes(world, name, (name,)), (name,), 10)
    world.bytes_of = {"a": 1, "b": 1, "c": 1}
    world.operations.check_and_complete_all(["b", "a", "x"])
    assert world.events == ["b completed", "a completed"]


def test_operation_expires_at_its_deadline_and_is_not_completed_after() -> None:
    world = World()
    waiting = world.operations.try_complete_else_watch(WaitForBytes(world, "f", ("a",)), ["a"], 10)
    world.advance_to(9)
    assert world.events == []
    world.advance_to(10)
    assert waiting.ending is Ending.EXPIRED
    assert_nothing_is_kept(world)
    world.append("a")
    assert not world.operations.try_complete(waiting)
    assert world.events == ["f expired"]


def test_change_of_another_key_leaves_the_operation_delayed() -> None:
    world = World()
    world.operations.try_complete_else_watch(WaitForBytes(world, "f", ("a", "b")), ["a"], 10)
    world.append("b")  # satisfies it, but it does not watch b
    assert world.events == []
    world.operations.check_and_complete("a")
    assert world.events == ["f completed"]


def test_operations_of_a_key_complete_in_order_of_arrival() -> None:
    world = World()
    for number in range(5):
        world.operations.try_complete_else_watch(
            WaitForBytes(world, str(number), ("a",)), ["a"], 10
        )
    world.append("a")
    assert world.events == [f"{number} completed" for number in range(5)]


def test_cancelled_operation_leaves_every_list_and_is_never_called() -> None:
    world = World()
    waiting = world.operations.try_complete_else_watch(
        WaitForBytes(world, "f", ("a", "b")), ["a", "b"], 10
    )
    assert world.operations.cancel(waiting)
    assert_nothing_is_kept(world)
    world.append("a")
    world.advance_to(100)
    assert not world.operations.cancel(waiting)
    assert world.events == []
    assert waiting.ending is Ending.CANCELLED


def test_finished_operation_is_freed_without_a_purge_or_the_collector() -> None:
    world = World()
    operation = WaitForBytes(world, "f", ("a",))
    freed = weakref.ref(operation)
    world.operations.try_complete_else_watch(operation, ["a"], 10)
    world.append("a")
    gc.disable()
    try:
        del operation
        assert freed() is None
    finally:
        gc.enable()


def test_key_named_twice_is_watched_once() -> None:
    world = World()
    world.operations.try_complete_else_watch(WaitForBytes(world, "f", ("a",)), ["a", "a"], 10)
    assert world.statistics().watches == 1
    world.append("a")
    assert_nothing_is_kept(world)


def test_operation_without_keys_waits_for_its_deadline_or_to_be_tried() -> None:
    world = World()
    tried = world.operations.try_complete_else_watch(WaitForBytes(world, "tried", ("a",)), [], 10)
    world.operations.try_complete_else_watch(WaitForBytes(world, "left", ("b",)), [], 10)
    world.append("a")
    assert world.operations.try_complete(tried)
    world.advance_to(10)
    assert world.events == ["tried completed", "left expired"]


def test_full_purgatory_refuses_another_operation() -> None:
    world = World(max_operations=2)
    for name in ("1", "2"):
        world.operations.try_complete_else_watch(WaitForBytes(world, name, ("a",)), ["a"], 10)
    with pytest.raises(
        PurgatoryFull, match=r"fetch purgatory: 3 operations.*at most 2.*raise the limit"
    ):
        world.operations.try_complete_else_watch(WaitForBytes(world, "3", ("a",)), ["a"], 10)
    assert world.statistics().refused == 1
    assert len(world.wheel) == 2
    world.append("a")
    world.operations.try_complete_else_watch(WaitForBytes(world, "4", ("b",)), ["b"], 10)
    assert world.events == ["1 completed", "2 completed"]


def test_watched_keys_are_bounded_too() -> None:
    world = World(max_watches=3)
    world.operations.try_complete_else_watch(WaitForBytes(world, "1", ("a", "b")), ["a", "b"], 10)
    with pytest.raises(PurgatoryFull, match="fetch purgatory: 4 watched keys"):
        world.operations.try_complete_else_watch(
            WaitForBytes(world, "2", ("a", "b")), ["a", "b"], 10
        )
    assert world.statistics().watches == 2


def test_satisfied_operation_is_not_refused_by_a_full_purgatory() -> None:
    world = World(max_operations=0)
    world.append("a")
    waiting = world.operations.try_complete_else_watch(WaitForBytes(world, "f", ("a",)), ["a"], 10)
    assert waiting.ending is Ending.COMPLETED


def test_a_long_chain_of_completions_does_not_recurse() -> None:
    length = 5000
    world = World(max_operations=length, max_watches=length)
    for number in range(length):
        operation = WaitForBytes(
            world,
            str(number),
            (f"k{number}",),
            then=partial(world.append, f"k{number + 1}"),
        )
        world.operations.try_complete_else_watch(operation, operation.keys, 10)
    world.append("k0")
    assert world.events == [f"{number} completed" for number in range(length)]
    assert_nothing_is_kept(world)


def test_completion_that_cancels_a_neighbour_spares_it() -> None:
    world = World()
    operation = WaitForBytes(world, "1", ("a",), then=lambda: world.operations.cancel(second))
    world.operations.try_complete_else_watch(operation, ["a"], 10)
    second = world.operations.try_complete_else_watch(WaitForBytes(world, "2", ("a",)), ["a"], 10)
    world.append("a")
    assert world.events == ["1 completed"]


def test_completion_may_watch_the_same_key_again() -> None:
    world = World()
    again = WaitForBytes(world, "again", ("a",), min_bytes=2)
    first = WaitForBytes(
        world,
        "first",
        ("a",),
        then=lambda: world.operations.try_complete_else_watch(again, ["a"], 20),
    )
    world.operations.try_complete_else_watch(first, ["a"], 10)
    world.append("a")
    assert world.statistics().delayed == 1
    world.append("a")
    assert world.events == ["first completed", "again completed"]


def test_completions_error_reaches_the_caller_and_later_checks_still_work() -> None:
    world = World()

    def fail() -> None:
        raise OSError("disk on fire")

    world.operations.try_complete_else_watch(
        WaitForBytes(world, "bad", ("a",), then=fail), ["a"], 10
    )
    world.operations.try_complete_else_watch(WaitForBytes(world, "good", ("a",)), ["a"], 10)
    with pytest.raises(OSError, match="disk on fire"):
        world.append("a")
    world.operations.check_and_complete("a")
    assert world.events == ["bad completed", "good completed"]


def test_expire_all_expires_every_operation_once() -> None:
    world = World()
    for name in ("1", "2"):
        world.operations.try_complete_else_watch(WaitForBytes(world, name, ("a",)), ["a"], 10)
    world.operations.expire_all()
    world.advance_to(10)
    assert world.events == ["1 expired", "2 expired"]
    assert_nothing_is_kept(world)
