"""A shard's timers, by key. Invariant: one timer per key; a timer that fires has left the table."""

from collections.abc import Callable, Hashable, Set
from functools import partial

from penstock.coordinators.runtime.dependencies import CoordinatorTimers
from penstock.purgatory.timing_wheel import Timer


class ShardTimers:
    """Owned by its shard."""

    def __init__(self, timers: CoordinatorTimers) -> None:
        self._timers = timers
        self._by_key: dict[Hashable, Timer[Callable[[], None]]] = {}

    def set(self, key: Hashable, delay_ms: int, call: Callable[[], None]) -> None:
        """Replaces the timer with the same key."""
        timer = self._by_key.get(key)
        if timer is not None:
            self._timers.cancel(timer)
        self._by_key[key] = self._timers.add_after(delay_ms, partial(self._fire, key, call))

    def cancel(self, key: Hashable) -> None:
        timer = self._by_key.pop(key, None)
        if timer is not None:
            self._timers.cancel(timer)

    def cancel_all(self) -> None:
        for timer in self._by_key.values():
            self._timers.cancel(timer)
        self._by_key.clear()

    def active_keys(self) -> Set[Hashable]:
        return self._by_key.keys()

    def _fire(self, key: Hashable, call: Callable[[], None]) -> None:
        del self._by_key[key]
        call()
