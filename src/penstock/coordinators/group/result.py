"""What a command to a group comes to: records to write, answers to send, timers to set.

Deciders return it and touch nothing outside their own state; the coordinator carries it out.
Invariant: durable state changes only by replaying records, so a replay of the log gives it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.coordinators.runtime.record_batches import NO_TRANSACTION, WrittenBy

Answer = TypeVar("Answer")


class Later:
    """The command's own answer: its waiter is kept in the group and answered by `replies`."""


LATER = Later()


class Reply(NamedTuple):
    to: Waiter
    answer: object  # of the type that the waiting request expects


class TimerKey(NamedTuple):
    group: str
    kind: str
    member: str = ""


class SetTimer(NamedTuple):
    """Replaces one of the same key. When it is due, the group's `on_timer` decides."""

    key: TimerKey
    delay_ms: int


class CancelTimer(NamedTuple):
    key: TimerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult(Generic[Answer]):
    """Records are appended as one batch and replayed at once; answers leave when they, and all
    records before them, are committed. If they cannot be, every answer is replaced by the error
    and the shard is loaded anew."""

    answer: Answer | Later
    records: Sequence[GroupRecord] = ()
    replies: Sequence[Reply] = ()
    timers: Sequence[SetTimer | CancelTimer] = ()
    written_by: WrittenBy = NO_TRANSACTION  # in whose transaction the records stand
