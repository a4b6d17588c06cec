"""Operations that wait for a change of what they watch, or for their deadline.

Knows neither partitions nor sockets, and no clock. Each operation ends exactly once, and at that
moment it is in no watch list and in no wheel any more.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from penstock.purgatory.timing_wheel import Timer

Key = TypeVar("Key", bound=Hashable)
Call = Callable[[], None]


class DelayedOperation(Protocol):
    """What a request still has to do. The owner calls one of the two endings, once."""

    def is_satisfied(self) -> bool:
        """Whether it can be completed now. Looks only: it may be asked at any time, any often."""

    def complete(self) -> None:
        """It is satisfied: act."""

    def expire(self) -> None:
        """Its deadline passed before: answer with what there is."""


class PurgatoryTimers(Protocol):
    """A wheel, or whoever drives one; it calls each value when its deadline has passed."""

    def add(self, deadline_ms: int, value: Call, /) -> Timer[Call]: ...

    def cancel(self, timer: Timer[Call], /) -> bool: ...


class Ending(Enum):
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class PurgatoryFull(Exception):
    """An operation was refused: as many wait as may."""

    def __init__(self, name: str, unit: str, count: int, limit: int) -> None:
        super().__init__(
            f"{name}: {count} {unit} with this one, at most {limit} may wait at a time; "
            f"answer it without waiting, or raise the limit"
        )


class WatchedOperation(Generic[Key]):
    """One operation that was asked to wait: its handle for `cancel`. Owned by its room."""

    __slots__ = ("ending", "keys", "operation", "timer")

    def __init__(self, operation: DelayedOperation, keys: tuple[Key, ...]) -> None:
        self.operation = operation
        self.keys = keys
        self.ending: Ending | None = None  # None: waits; set once
        self.timer: Timer[Call] | None = None  # None: never parked, or has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgatoryStatistics:
    delayed: int
    watches: int  # the sum of the waiting operations' keys
    watched_keys: int
    completed_at_once: int
    completed: int  # after a wait
    expired: int
    cancelled: int
    refused: int


class Purgatory(Generic[Key]):
    """The waiting operations of one kind. One owner: the thread of the event loop."""

    def __init__(
        self, name: str, timers: PurgatoryTimers, *, max_operations: int, max_watches: int
    ) -> None:
        self._name = name  # for messages
        self._timers = timers
        self._max_operations = max_operations
        self._max_watches = max_watches
        # Dictionaries as ordered sets: first come, first checked, and O(1) to leave.
        self._watchers: dict[Key, dict[WatchedOperation[Key], None]] = {}  # no empty entries
        self._waiting: dict[WatchedOperation[Key], None] = {}
        self._watches = 0
        self._changed: dict[Key, None] = {}  # checks asked for within a check
        self._is_checking = False
        self._at_once = self._refused = 0
        self._ended = dict.fromkeys(Ending, 0)

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Key], deadline_ms: int
    ) -> WatchedOperation[Key]:
        """Complete it now if that is possible, else when a key changes or the deadline passes."""
        waiting = WatchedOperation(operation, tuple(dict.fromkeys(keys)))
        if operation.is_satisfied():
            self._at_once += 1
            waiting.ending = Ending.COMPLETED
            operation.complete()
            return waiting
        self._refuse_beyond_limits(len(waiting.keys))
        self._park(waiting, deadline_ms)
        return waiting

    def check_and_complete(self, key: Key) -> None:
        """Something changed on the key: complete what became possible, in order of arrival.

        A completion may itself change keys and call this. Those checks follow one after another
        when the present one is through: no recursion, however long the chain.
        """
        if key not in self._watchers:
            return
        self._changed[key] = None
        if self._is_checking:
            return
        self._is_checking = True
        try:
            while self._changed:
                changed = next(iter(self._changed))
                del self._changed[changed]
                for waiting in tuple(self._watchers.get(changed, ())):
                    self.try_complete(waiting)
        finally:
            self._is_checking = False
            self._changed.clear()

    def check_and_complete_all(self, keys: Iterable[Key]) -> None:
        if self._watchers:  # else nobody waits for any
            for key in keys:
                self.check_and_complete(key)

    def try_complete(self, waiting: WatchedOperation[Key]) -> bool:
        """True if it was this call that completed it."""
        if waiting.ending is not None or not waiting.operation.is_satisfied():
            return False
        self._end(waiting, Ending.COMPLETED)
        waiting.operation.complete()
        return True

    def cancel(self, waiting: WatchedOperation[Key]) -> bool:
        """Neither ending is called: nobody waits for the answer. False if it has ended before."""
        if waiting.ending is not None:
            return False
        self._end(waiting, Ending.CANCELLED)
        return True

    def expire_all(self) -> None:
        """Answer everyone now, as at a shutdown."""
        for waiting in tuple(self._waiting):
            self._expire(waiting)

    def statistics(self) -> PurgatoryStatistics:
        return PurgatoryStatistics(
            delayed=len(self._waiting),
            watches=self._watches,
            watched_keys=len(self._watchers),
            completed_at_once=self._at_once,
            completed=self._ended[Ending.COMPLETED],
            expired=self._ended[Ending.EXPIRED],
            cancelled=self._ended[Ending.CANCELLED],
            refused=self._refused,
        )

    def _refuse_beyond_limits(self, watches: int) -> None:
        operations = len(self._waiting) + 1
        watches += self._watches
        if operations > self._max_operations:
            self._refused += 1
            raise PurgatoryFull(self._name, "operations", operations, self._max_operations)
        if watches > self._max_watches:
            self._refused += 1
            raise PurgatoryFull(self._name, "watched keys", watches, self._max_watches)

    def _park(self, waiting: WatchedOperation[Key], deadline_ms: int) -> None:
        # The timer first: if its owner has stopped and raises, nothing is half parked.
        waiting.timer = self._timers.add(deadline_ms, lambda: self._expire(waiting))
        self._waiting[waiting] = None
        self._watches += len(waiting.keys)
        for key in waiting.keys:
            self._watchers.setdefault(key, {})[waiting] = None

    def _expire(self, waiting: WatchedOperation[Key]) -> None:
        if waiting.ending is None:
            self._end(waiting, Ending.EXPIRED)
            waiting.operation.expire()

    def _end(self, waiting: WatchedOperation[Key], ending: Ending) -> None:
        """Leave every list before the operation acts, so that it cannot be reached again."""
        assert waiting.timer is not None, "what was never parked cannot end"
        waiting.ending = ending
        self._ended[ending] += 1
        del self._waiting[waiting]
        self._watches -= len(waiting.keys)
        for key in waiting.keys:
            watchers = self._watchers[key]
            del watchers[waiting]
            if not watchers:
                del self._watchers[key]
        self._timers.cancel(waiting.timer)
        waiting.timer = None  # breaks the ring: operation, timer, call, operation
