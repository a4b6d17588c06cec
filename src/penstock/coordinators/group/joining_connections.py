"""The connections of clients that were given a member id and have not joined with it yet.

Only they need the id: when the connection closes, it is forgotten at once rather than after the
session time-out, which a client may set to half an hour. Owned by the coordinator.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.coordinators.group.requests import RequestOrigin

_FEW = 64  # entries of a connection, before it is worth to look for obsolete ones


class PendingJoin(NamedTuple):
    group: str
    member: str


class JoiningConnections:
    """`is_pending` tells whether an entry still matters, `abandon` is called when its connection
    has closed."""

    def __init__(
        self, is_pending: Callable[[PendingJoin], bool], abandon: Callable[[PendingJoin], None]
    ) -> None:
        self._is_pending = is_pending
        self._abandon = abandon
        self._entries: dict[int, set[PendingJoin]] = {}  # by connection, until it closes
        self._prune_at: dict[int, int] = {}

    def add(self, origin: RequestOrigin, pending: PendingJoin) -> None:
        connection = origin.connection
        entries = self._entries.get(connection)
        if entries is None:
            entries = self._entries[connection] = set()
            entries.add(pending)
            origin.on_disconnect(lambda: self._on_disconnect(connection))
            return
        entries.add(pending)
        if len(entries) >= self._prune_at.get(connection, _FEW):
            self._prune(connection, entries)

    def discard(self, origin: RequestOrigin, pending: PendingJoin) -> None:
        """It joins now."""
        self._entries.get(origin.connection, set()).discard(pending)

    def count(self) -> int:
        return sum(map(len, self._entries.values()))

    def _prune(self, connection: int, entries: set[PendingJoin]) -> None:
        """Ids may have expired while the connection lives on."""
        entries -= {entry for entry in entries if not self._is_pending(entry)}
        self._prune_at[connection] = max(_FEW, 2 * len(entries))

    def _on_disconnect(self, connection: int) -> None:
        self._prune_at.pop(connection, None)
        for pending in self._entries.pop(connection, set()):
            self._abandon(pending)
