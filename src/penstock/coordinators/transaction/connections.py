"""The connections of each transactional id, to detect a late EndTxn of old clients.

Before KIP-890 the epoch of a late EndTxn equals that of the next transaction's. But a client that
gives up on a request also gives up its connection and continues over another. Volatile: a reload
forgets it.
"""

_REMEMBERED = 4  # connections per transactional id


class Connections:
    """Owned by its shard's state. Every connection has a higher number than those before it."""

    def __init__(self) -> None:
        self._by_id: dict[str, tuple[int, ...]] = {}  # in order of use, the current one last

    def note(self, transactional_id: str, connection: int) -> None:
        """The owner has added partitions over this connection."""
        used = self._by_id.get(transactional_id, ())
        if connection in used[:-1]:
            used = ()  # used again: this client has several at once and abandons none
        if used[-1:] != (connection,):
            self._by_id[transactional_id] = (*used[1 - _REMEMBERED :], connection)

    def is_abandoned(self, transactional_id: str, connection: int) -> bool:
        """Whether the owner has used it and has since moved on to a newer one."""
        used = self._by_id.get(transactional_id, ())
        return connection in used[:-1] and connection < used[-1]

    def forget(self, transactional_id: str) -> None:
        self._by_id.pop(transactional_id, None)
