"""One command's run over a classic group: gathers what it comes to, and then gives its Outcome.

Of several timers with the same key the last word counts.
"""

from typing import TypeVar

from penstock.coordinators.group.classic.state import ClassicGroup, ClassicState, Member
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.records import GroupRecord, encode_record
from penstock.coordinators.group.requests import JoinGroupMember, JoinGroupReply, SyncGroupReply
from penstock.coordinators.group.result import (
    LATER,
    CancelTimer,
    GroupResult,
    Later,
    Reply,
    SetTimer,
    TimerKey,
)
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.model.errors import ErrorCode

Answer = TypeVar("Answer")

SESSION = "session"  # of a member: no word from it
JOIN = "join"  # of the group: members that do not join again
SYNC = "sync"  # of the group: members that joined and do not sync

_BATCH_OVERHEAD_BYTES = 128  # header of a batch and lengths of its record, with room to spare


class ClassicCommandContext:
    def __init__(self, group: ClassicGroup, now_ms: int, config: GroupConfig) -> None:
        self.group = group
        self.now_ms = now_ms  # of the wall clock: it is written; time-outs are delays
        self.config = config
        self._records: list[GroupRecord] = []
        self._replies: list[Reply] = []
        self._timers: dict[TimerKey, SetTimer | CancelTimer] = {}

    def outcome(self, answer: Answer | Later) -> GroupResult[Answer]:
        return GroupResult(
            answer=answer,
            records=self._records,
            replies=self._replies,
            timers=list(self._timers.values()),
        )

    def take_reply(self, waiter: Waiter) -> object:
        """What the command itself is answered in its own run, or LATER."""
        for place, reply in enumerate(self._replies):
            if reply.to == waiter:
                del self._replies[place]
                return reply.answer
        return LATER

    def fits(self, record: GroupRecord) -> bool:
        """A record that the log refuses would cost the whole shard its state, not this group."""
        key, value = encode_record(record)
        size = len(key) + len(value or b"") + _BATCH_OVERHEAD_BYTES
        return size <= self.config.max_record_bytes

    def store(self, record: GroupRecord) -> None:
        self._records.append(record)

    def set_timer(self, kind: str, delay_ms: int, member: str = "") -> None:
        key = TimerKey(self.group.name, kind, member)
        self._timers.pop(key, None)
        self._timers[key] = SetTimer(key, delay_ms)

    def cancel_timer(self, kind: str, member: str = "") -> None:
        key = TimerKey(self.group.name, kind, member)
        self._timers.pop(key, None)
        self._timers[key] = CancelTimer(key)

    def hear_from(self, member: Member) -> None:
        """Its session begins anew."""
        self.set_timer(SESSION, member.session_timeout_ms, member.id)

    def answer_join(self, member: Member, answer: JoinGroupReply) -> None:
        waiter = self.group.take_join_waiter(member)
        if waiter is not None:
            self._replies.append(Reply(waiter, answer))

    def refuse_join(self, member: Member, error: ErrorCode, *, member_id: str) -> None:
        self.answer_join(member, JoinGroupReply(error=error, member=member_id))

    def answer_sync(self, member: Member, answer: SyncGroupReply) -> None:
        if member.sync_waiter is not None:
            self._replies.append(Reply(member.sync_waiter, answer))
            member.sync_waiter = None


def joined(group: ClassicGroup, member: Member) -> JoinGroupReply:
    """The current generation, as one of its members is told; the leader hears who is in it."""
    is_leader = group.leader == member.id
    return JoinGroupReply(
        error=ErrorCode.NONE,
        member=member.id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or "",
        members=roll(group) if is_leader else (),
    )


def roll(group: ClassicGroup) -> tuple[JoinGroupMember, ...]:
    assert group.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
    return tuple(
        JoinGroupMember(each.id, each.instance, each.find_metadata(group.protocol) or b"")
        for each in group.members.values()
    )


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupReply:
    return SyncGroupReply(
        error=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        assignment=assignment,
    )
