"""Over which connections a transactional id was written to: tells late ends of old clients.

Their epoch does not tell it from the end of the next transaction. But a client that has given up on
a request has left its connection, and goes on over another one. Soft: not known after a reload.
"""

_REMEMBERED = 4  # connections of an id


class Connections:
    """Owned by its shard. A connection's number is higher than that of every one before it."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, ...]] = {}  # id -> in the order of use, the last in use

    def note(self, transactional_id: str, connection: int) -> None:
        """The owner has added to its transaction over it."""
        known = self._of.get(transactional_id, ())
        if connection in known[:-1]:
            known = ()  # in use again: this client has several, and leaves none
        if known[-1:] != (connection,):
            self._of[transactional_id] = (*known[1 - _REMEMBERED :], connection)

    def is_left(self, transactional_id: str, connection: int) -> bool:
        """Whether the owner has used it, and has gone on over one that was made later."""
        known = self._of.get(transactional_id, ())
        return connection in known[:-1] and connection < known[-1]

    def forget(self, transactional_id: str) -> None:
        self._of.pop(transactional_id, None)

    def clear(self) -> None:
        self._of.clear()
