"""CoordinatorResult: a command's decision, as records to write, replies to send, timers to set.

Deciders return it and do no I/O; the shard carries it out. Invariant: durable state changes only by
replaying records, so that a replay of the log rebuilds it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, NewType, TypeVar

from penstock.coordinators.runtime.record_batches import NO_TRANSACTION, WrittenBy
from penstock.model.markers import TransactionMarker

State = TypeVar("State")
ReplyType = TypeVar("ReplyType")
RecordType = TypeVar("RecordType")
ReplyType_co = TypeVar("ReplyType_co", covariant=True)
RecordType_co = TypeVar("RecordType_co", covariant=True)

Waiter = NewType("Waiter", int)  # a request whose reply may come later, from another command
NOBODY = Waiter(0)  # the waiter of a command that no client sent: a timer's, or a sweep's


class Later:
    """Takes the place of a reply: the group keeps the waiter, and a later command replies to it."""


LATER = Later()


class DeferredReply(NamedTuple):
    waiter: Waiter
    reply: object  # of the type that the waiting request expects


class SetTimer(NamedTuple):
    """Replaces the timer with the same key. When it fires, `on_timer` of the state decides."""

    key: Hashable
    delay_ms: int


class CancelTimer(NamedTuple):
    key: Hashable


class CoordinatorNote(NamedTuple):
    """A log event about a group or a transactional id, which clients cause: it is rate-limited."""

    event: str
    name: str  # of the group, or the transactional id
    message: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorResult(Generic[ReplyType_co, RecordType_co]):
    """Records are appended in one write and replayed at once. Replies leave when these records, and
    all before them, are committed. If the write fails, every reply becomes its error."""

    reply: ReplyType_co | Later
    records: Sequence[RecordType_co] = ()
    deferred_replies: Sequence[DeferredReply] = ()
    timers: Sequence[SetTimer | CancelTimer] = ()
    written_by: WrittenBy = NO_TRANSACTION  # the transaction that the records belong to
    end_marker: TransactionMarker | None = None  # written in place of records
    notes: Sequence[CoordinatorNote] = ()  # logged once the records are written


# A command decides from the state, the waiter of its reply and the wall clock's time.
Command = Callable[[State, Waiter, int], CoordinatorResult[ReplyType, RecordType]]
