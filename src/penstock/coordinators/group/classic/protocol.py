"""The classic group protocol as deciders: a group and an event in, an Outcome out.

No clock, no log, no connection. `now_ms` is the wall clock's, for what is written; time-outs are
delays that the coordinator measures. Joining and syncing have modules of their own.
"""

from collections.abc import Sequence

from penstock.coordinators.group.classic.context import JOIN, SESSION, SYNC, ClassicCommandContext
from penstock.coordinators.group.classic.join import join
from penstock.coordinators.group.classic.queries import (
    check_commit,
    check_delete,
    check_delete_offsets,
    describe,
    expiry_base_ms,
    list_group,
)
from penstock.coordinators.group.classic.rebalance import (
    expel,
    go_on,
    on_join_timer,
    rebalance,
    rebalance_or_go_on,
)
from penstock.coordinators.group.classic.state import ClassicGroup, ClassicState, replay
from penstock.coordinators.group.classic.sync import sync
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.records import GroupKey, GroupRecord
from penstock.coordinators.group.requests import (
    UNKNOWN_MEMBER,
    Heartbeat,
    LeaveResult,
    LeavingMember,
    SyncGroupReply,
)
from penstock.coordinators.group.result import GroupResult, SetTimer, TimerKey
from penstock.model.errors import ErrorCode

__all__ = [
    "ClassicGroup",
    "ClassicState",
    "check_commit",
    "check_delete",
    "check_delete_offsets",
    "delete",
    "describe",
    "expiry_base_ms",
    "heartbeat",
    "join",
    "leave",
    "list_group",
    "on_loaded",
    "on_timer",
    "release",
    "replay",
    "session_timer",
    "sync",
    "tombstone",
]


def heartbeat(
    group: ClassicGroup, request: Heartbeat, now_ms: int, config: GroupConfig
) -> GroupResult[ErrorCode]:
    turn = ClassicCommandContext(group, now_ms, config)
    if group.state is ClassicState.DEAD:
        return turn.outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    error = group.check_member(request.member, request.instance)
    if error is not ErrorCode.NONE:
        return turn.outcome(error)
    if request.generation != group.generation:
        return turn.outcome(ErrorCode.ILLEGAL_GENERATION)
    turn.hear_from(group.members[request.member])
    if group.state is ClassicState.PREPARING_REBALANCE:
        return turn.outcome(ErrorCode.REBALANCE_IN_PROGRESS)
    return turn.outcome(ErrorCode.NONE)


def leave(
    group: ClassicGroup, leavers: Sequence[LeavingMember], now_ms: int, config: GroupConfig
) -> GroupResult[tuple[ErrorCode, tuple[LeaveResult, ...]]]:
    """All that may leave do, and the rest of the group rebalances once."""
    turn = ClassicCommandContext(group, now_ms, config)
    if group.state is ClassicState.DEAD:
        return turn.outcome((ErrorCode.COORDINATOR_NOT_AVAILABLE, ()))
    count = len(group.members)
    left = tuple(
        LeaveResult(each.member, each.instance, _take_leave(turn, each)) for each in leavers
    )
    if len(group.members) < count:
        rebalance_or_go_on(turn)
    else:
        go_on(turn)
    return turn.outcome((ErrorCode.NONE, left))


def _take_leave(turn: ClassicCommandContext, leaver: LeavingMember) -> ErrorCode:
    group = turn.group
    if leaver.member in group.pending:
        _drop_pending(turn, leaver.member)
        return ErrorCode.NONE
    member_id = leaver.member
    if member_id == UNKNOWN_MEMBER and leaver.instance is not None:
        # An operator removes a static member, whatever its id is now.
        member_id = group.instances.get(leaver.instance, UNKNOWN_MEMBER)
    error = group.check_member(member_id, leaver.instance)
    if error is ErrorCode.NONE:
        expel(turn, group.members[member_id])
    return error


def on_timer(
    group: ClassicGroup, key: TimerKey, now_ms: int, config: GroupConfig
) -> GroupResult[None]:
    turn = ClassicCommandContext(group, now_ms, config)
    if key.kind == SESSION:
        _expire_session(turn, key.member)
    elif key.kind == JOIN:
        on_join_timer(turn)
    elif key.kind == SYNC:
        _expire_unsynced(turn)
    return turn.outcome(None)


def _expire_session(turn: ClassicCommandContext, member_id: str) -> None:
    group = turn.group
    member = group.members.get(member_id)
    if member_id in group.pending:
        _drop_pending(turn, member_id)
        go_on(turn)
    elif member is not None and not member.is_heard:
        expel(turn, member)
        rebalance_or_go_on(turn)


def _expire_unsynced(turn: ClassicCommandContext) -> None:
    """Members that joined a generation and then did not ask for their part of it."""
    group = turn.group
    missing = [group.members[each] for each in group.unsynced]
    for member in missing:
        expel(turn, member)
    if missing:
        rebalance(turn)


def _drop_pending(turn: ClassicCommandContext, member_id: str) -> None:
    turn.group.pending.discard(member_id)
    turn.cancel_timer(SESSION, member_id)


def on_loaded(group: ClassicGroup, now_ms: int, config: GroupConfig) -> GroupResult[None]:
    """After its records were read: every member has its session to come back."""
    turn = ClassicCommandContext(group, now_ms, config)
    for member in group.members.values():
        turn.hear_from(member)
    if len(group.members) > config.max_size:
        rebalance(turn)
    return turn.outcome(None)


def release(
    group: ClassicGroup, error: ErrorCode, now_ms: int, config: GroupConfig
) -> GroupResult[None]:
    """Answers whoever waits and stops all timers: the group is led, or kept, elsewhere now."""
    turn = ClassicCommandContext(group, now_ms, config)
    for member in group.members.values():
        turn.refuse_join(member, error, member_id=member.id)
        turn.answer_sync(member, SyncGroupReply(error=error))
        turn.cancel_timer(SESSION, member.id)
    for member_id in group.pending:
        turn.cancel_timer(SESSION, member_id)
    turn.cancel_timer(JOIN)
    turn.cancel_timer(SYNC)
    group.enter(ClassicState.DEAD, now_ms)
    return turn.outcome(None)


def delete(group: ClassicGroup, now_ms: int, config: GroupConfig) -> GroupResult[ErrorCode]:
    """Its offsets are the caller's to take away too."""
    error = check_delete(group)
    turn = ClassicCommandContext(group, now_ms, config)
    if error is ErrorCode.NONE:
        for member_id in group.pending:
            turn.cancel_timer(SESSION, member_id)
        turn.store(tombstone(group))
    return turn.outcome(error)


def tombstone(group: ClassicGroup) -> GroupRecord:
    return GroupRecord(GroupKey(group.name), None)


def session_timer(group: ClassicGroup, member: str) -> Sequence[SetTimer]:
    """A commit is a sign of life like a heartbeat."""
    known = group.members.get(member)
    if known is None:
        return ()
    return (SetTimer(TimerKey(group.name, SESSION, member), known.session_timeout_ms),)
