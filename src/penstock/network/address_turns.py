"""A queue in which addresses take turns, so that one with many waiters delays the others by one.

Not who may go, and when: its owners decide that. Invariant: the waiters of one address leave in
order of arrival.
"""

from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")  # hashable


class AddressTurns(Generic[Waiter]):
    """Owned by the event loop."""

    __slots__ = ("_by_host", "_count")

    def __init__(self) -> None:
        self._by_host: dict[str, dict[Waiter, None]] = {}  # the next address first; none is empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, host: str, waiter: Waiter) -> None:
        """One that waits already keeps its place."""
        waiters = self._by_host.setdefault(host, {})
        if waiter not in waiters:
            waiters[waiter] = None
            self._count += 1

    def find_next(self) -> Waiter | None:
        """The one that `take_next` would take; None: nobody waits."""
        for waiters in self._by_host.values():
            return next(iter(waiters))
        return None

    def take_next(self) -> Waiter:
        """Its address comes behind the others."""
        host = next(iter(self._by_host))
        waiters = self._by_host.pop(host)
        waiter = next(iter(waiters))
        del waiters[waiter]
        self._count -= 1
        if waiters:
            self._by_host[host] = waiters
        return waiter

    def discard(self, host: str, waiter: Waiter) -> None:
        """It does not wait any more, if it did."""
        waiters = self._by_host.get(host)
        if waiters is None or waiter not in waiters:
            return
        del waiters[waiter]
        self._count -= 1
        if not waiters:
            del self._by_host[host]
