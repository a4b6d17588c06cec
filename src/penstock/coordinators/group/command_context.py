"""The context of a command to a group: its inputs besides the request, and its result so far.

The contexts of the two protocols extend it. If a command sets the same timer twice, the last call
counts.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeVar

from penstock.config.setting import INT_MAX
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import GroupRecord, encode_record
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import (
    CancelTimer,
    CoordinatorNote,
    CoordinatorResult,
    DeferredReply,
    Later,
    SetTimer,
)

ReplyType = TypeVar("ReplyType")

_NAMED_MEMBERS = 3
_BATCH_OVERHEAD_BYTES = 128  # batch header and record framing, generously


def describe_members(ids: Sequence[str]) -> str:
    """For the log: a few by name, the rest by number."""
    names = ", ".join(ids[:_NAMED_MEMBERS])
    more = len(ids) - _NAMED_MEMBERS
    return f"member{'s' if len(ids) > 1 else ''} {names}" + (
        f" and {more} more" if more > 0 else ""
    )


class CommandEnvironment(NamedTuple):
    now_ms: int  # of the wall clock, for records; time-outs are delays
    config: GroupConfig
    topics: Topics
    free_bytes: int = INT_MAX  # that the coordinator has left for members


class GroupCommandContext:
    """Collects the records, deferred replies and timers of one command."""

    def __init__(self, name: str, environment: CommandEnvironment) -> None:
        self.name = name
        self.now_ms, self.config, self.topics, self.free_bytes = environment
        self._records: list[GroupRecord] = []
        self._replies: list[DeferredReply] = []
        self._timers: dict[Hashable, SetTimer | CancelTimer] = {}
        self._notes: list[CoordinatorNote] = []

    def result(self, reply: ReplyType | Later) -> CoordinatorResult[ReplyType, GroupRecord]:
        return CoordinatorResult(
            reply=reply,
            records=self._records,
            deferred_replies=self._replies,
            timers=list(self._timers.values()),
            notes=self._notes,
        )

    def note(self, event: str, message: str, **fields: object) -> None:
        """An event for the log, once the command's records are written."""
        self._notes.append(
            CoordinatorNote(event, self.name, message, {"group": self.name, **fields})
        )

    def fits(self, record: GroupRecord) -> bool:
        """Checked before the write, because a record that the log refuses reloads the shard."""
        key, value = encode_record(record)
        size = len(key) + len(value or b"") + _BATCH_OVERHEAD_BYTES
        return size <= self.config.max_record_bytes

    def set_timer(self, kind: str, delay_ms: int, member: str = "") -> None:
        key = TimerKey(self.name, kind, member)
        self._timers.pop(key, None)
        self._timers[key] = SetTimer(key, max(delay_ms, 0))

    def cancel_timer(self, kind: str, member: str = "") -> None:
        key = TimerKey(self.name, kind, member)
        self._timers.pop(key, None)
        self._timers[key] = CancelTimer(key)
