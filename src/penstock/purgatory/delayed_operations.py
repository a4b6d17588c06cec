"""A purgatory: delayed operations that wait for a change of a watched key, or for their deadline.

It knows neither partitions nor sockets, and has no clock. Invariant: each operation ends exactly
once, and is then in no watch list and in no timing wheel.
"""

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from penstock.purgatory.timing_wheel import Timer

Key = TypeVar("Key", bound=Hashable)
Call = Callable[[], None]


class DelayedOperation(Protocol):
    """The rest of a request's work. The purgatory calls `complete` or `expire`, exactly once."""

    def is_satisfied(self) -> bool:
        """Whether it can be completed now. Without side effects: called any number of times."""

    def complete(self) -> None:
        """It is satisfied: respond."""

    def expire(self) -> None:
        """Its deadline has passed: respond with what there is."""


class PurgatoryTimers(Protocol):
    """A timing wheel, or its driver; it calls a value once its deadline has passed."""

    def add(self, deadline_ms: int, value: Call, /) -> Timer[Call]: ...

    def cancel(self, timer: Timer[Call], /) -> bool: ...


class Ending(Enum):
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class PurgatoryFull(Exception):
    """An operation was refused: the purgatory has as many as it may hold."""

    def __init__(self, name: str, unit: str, count: int, limit: int) -> None:
        super().__init__(
            f"{name} purgatory: {count} {unit} with this one, at most {limit} are allowed; "
            f"respond without a delay, or raise the limit"
        )


class WatchedOperation(Generic[Key]):
    """One operation in a purgatory, which owns it; the handle for `cancel`."""

    __slots__ = ("ending", "keys", "operation", "timer")

    def __init__(self, operation: DelayedOperation, keys: tuple[Key, ...]) -> None:
        self.operation = operation
        self.keys = keys
        self.ending: Ending | None = None  # None: still delayed; set once
        self.timer: Timer[Call] | None = None  # None: never watched, or ended


class PurgatoryStatistics(NamedTuple):
    delayed: int
    watches: int  # the sum of all operations' keys
    watched_keys: int
    completed_at_once: int
    completed: int  # after a delay
    expired: int
    cancelled: int
    refused: int


class Purgatory(Generic[Key]):
    """The delayed operations of one kind. Owned by the event loop's thread."""

    def __init__(
        self, name: str, timers: PurgatoryTimers, *, max_operations: int, max_watches: int
    ) -> None:
        self._name = name  # for messages
        self._timers = timers
        self._max_operations = max_operations
        self._max_watches = max_watches
        # Dictionaries as ordered sets: checked in order of arrival, O(1) to remove.
        self._watchers: dict[Key, dict[WatchedOperation[Key], None]] = {}  # no empty entries
        self._delayed: dict[WatchedOperation[Key], None] = {}
        self._watches = 0
        self._changed: dict[Key, None] = {}  # keys that changed during a check
        self._is_checking = False
        self._at_once = self._refused = 0
        self._ended = dict.fromkeys(Ending, 0)

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Key], deadline_ms: int
    ) -> WatchedOperation[Key]:
        """Complete it now if possible, else when a key changes or the deadline passes."""
        watched = WatchedOperation(operation, tuple(dict.fromkeys(keys)))
        if operation.is_satisfied():
            self._at_once += 1
            watched.ending = Ending.COMPLETED
            operation.complete()
            return watched
        self._refuse_beyond_limits(len(watched.keys))
        self._watch(watched, deadline_ms)
        return watched

    def check_and_complete(self, key: Key) -> None:
        """A key changed: complete the operations that are satisfied now, in order of arrival.

        A completion may itself change keys and call this. Those checks run after the current one:
        no recursion, however long the chain.
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
                for watched in tuple(self._watchers.get(changed, ())):
                    self.try_complete(watched)
        finally:
            self._is_checking = False
            self._changed.clear()

    def check_and_complete_all(self, keys: Iterable[Key]) -> None:
        watchers = self._watchers
        if watchers:  # else nothing is delayed
            for key in keys:
                if key in watchers:
                    self.check_and_complete(key)

    def try_complete(self, watched: WatchedOperation[Key]) -> bool:
        """True if this call completed it."""
        if watched.ending is not None or not watched.operation.is_satisfied():
            return False
        self._end(watched, Ending.COMPLETED)
        watched.operation.complete()
        return True

    def cancel(self, watched: WatchedOperation[Key]) -> bool:
        """End it without a response, because nobody waits for it. False if it had ended before."""
        if watched.ending is not None:
            return False
        self._end(watched, Ending.CANCELLED)
        return True

    def expire_all(self) -> None:
        """Respond to all of them now, at shutdown."""
        for watched in tuple(self._delayed):
            self._expire(watched)

    def statistics(self) -> PurgatoryStatistics:
        return PurgatoryStatistics(
            delayed=len(self._delayed),
            watches=self._watches,
            watched_keys=len(self._watchers),
            completed_at_once=self._at_once,
            completed=self._ended[Ending.COMPLETED],
            expired=self._ended[Ending.EXPIRED],
            cancelled=self._ended[Ending.CANCELLED],
            refused=self._refused,
        )

    def _refuse_beyond_limits(self, watches: int) -> None:
        operations = len(self._delayed) + 1
        watches += self._watches
        if operations > self._max_operations:
            self._refused += 1
            raise PurgatoryFull(self._name, "operations", operations, self._max_operations)
        if watches > self._max_watches:
            self._refused += 1
            raise PurgatoryFull(self._name, "watched keys", watches, self._max_watches)

    def _watch(self, watched: WatchedOperation[Key], deadline_ms: int) -> None:
        # The timer first: if the timers have stopped and raise, nothing is half watched.
        watched.timer = self._timers.add(deadline_ms, lambda: self._expire(watched))
        self._delayed[watched] = None
        self._watches += len(watched.keys)
        for key in watched.keys:
            self._watchers.setdefault(key, {})[watched] = None

    def _expire(self, watched: WatchedOperation[Key]) -> None:
        if watched.ending is None:
            self._end(watched, Ending.EXPIRED)
            watched.operation.expire()

    def _end(self, watched: WatchedOperation[Key], ending: Ending) -> None:
        """Remove it from every list before it responds, so that it cannot be reached again."""
        assert watched.timer is not None, "an operation that is not watched cannot end"
        watched.ending = ending
        self._ended[ending] += 1
        del self._delayed[watched]
        self._watches -= len(watched.keys)
        for key in watched.keys:
            watchers = self._watchers[key]
            del watchers[watched]
            if not watchers:
                del self._watchers[key]
        self._timers.cancel(watched.timer)
        watched.timer = None  # breaks a reference cycle: operation, timer, callback, operation
