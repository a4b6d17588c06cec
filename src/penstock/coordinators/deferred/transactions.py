"""The messages of a shard's open transactions, until a marker commits or drops them.

Decides nothing: which transaction a message belongs to is said by the batch that it was written in,
and a producer has one at a time. Values stay in the log.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.coordinators.deferred.values import DelayKey, Target


class UncommittedMessage(NamedTuple):
    number: int
    offset: int  # of its record
    size_bytes: int
    target: Target
    delay_key: DelayKey | None
    due_ms: int  # or, if that is later,
    delay_ms: int  # after the commit


class OpenTransactions:
    """Owned by its shard's state."""

    def __init__(self) -> None:
        self._messages: dict[int, list[UncommittedMessage]] = {}  # by producer id
        self._count = 0

    def __len__(self) -> int:
        """How many messages."""
        return self._count

    def add(self, producer_id: int, message: UncommittedMessage) -> None:
        self._messages.setdefault(producer_id, []).append(message)
        self._count += 1

    def end(self, producer_id: int) -> Sequence[UncommittedMessage]:
        """They are in the order in which they were sent. A repeated marker finds none."""
        messages = self._messages.pop(producer_id, [])
        self._count -= len(messages)
        return messages

    def snapshot(self) -> object:
        return {producer_id: tuple(some) for producer_id, some in self._messages.items()}
