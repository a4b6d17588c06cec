"""The newer group protocol (KIP-848) as deciders: a group and an event in, an Outcome out.

No clock, no log, no connection. `now_ms` is the wall clock's; time-outs are delays that the
coordinator measures. What is asked about a group is in `consumer_queries`.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from penstock.coordinators.group.classic.state import ClassicGroup
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer import classic_members as consumer_classic
from penstock.coordinators.group.consumer.classic_members import heartbeat as classic_heartbeat
from penstock.coordinators.group.consumer.classic_members import leave as classic_leave
from penstock.coordinators.group.consumer.classic_members import sync as classic_sync
from penstock.coordinators.group.consumer.context import (
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    TIMERS,
    ConsumerCommandContext,
    session_timeout_ms,
)
from penstock.coordinators.group.consumer.downgrade import (
    DOWNGRADED,
    call_members,
    expel,
    has_modern,
    tombstones,
    try_downgrade,
)
from penstock.coordinators.group.consumer.heartbeat import beat
from penstock.coordinators.group.consumer.members import check_shape, get_member, is_leaving
from penstock.coordinators.group.consumer.partitions import NOTHING
from penstock.coordinators.group.consumer.requests import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.consumer.state import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerState,
    MemberState,
    replay,
)
from penstock.coordinators.group.consumer.target_assignment import check_assignor
from penstock.coordinators.group.consumer.upgrade import end_classic, upgrade
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.requests import JoinGroup, JoinGroupReply
from penstock.coordinators.group.result import GroupResult, SetTimer, TimerKey
from penstock.model.errors import ErrorCode, Refusal

TIMER_KINDS = frozenset((*TIMERS, DOWNGRADED))  # `on_timer` here decides, whatever group it is of

__all__ = [
    "TIMER_KINDS",
    "ConsumerGroup",
    "ConsumerState",
    "classic_heartbeat",
    "classic_leave",
    "classic_sync",
    "delete",
    "heartbeat",
    "join",
    "on_loaded",
    "on_timer",
    "replay",
    "session_timer",
    "tombstones",
]


def heartbeat(
    group: ConsumerGroup | ClassicGroup | None,
    request: ConsumerHeartbeat,
    now_ms: int,
    config: GroupConfig,
    topics: Topics,
) -> GroupResult[ConsumerHeartbeatReply]:
    """None: there is no group of that name, which joining changes. A classic one is upgraded."""
    known = group if isinstance(group, ConsumerGroup) else ConsumerGroup(name=request.group)
    turn = ConsumerCommandContext(known, now_ms, config, topics)
    try:
        if isinstance(group, ClassicGroup):
            upgrade(turn, group, request)
        answer = _answer_heartbeat(turn, request)
    except Refusal as refusal:
        return GroupResult(answer=ConsumerHeartbeatReply(error=refusal.code, message=str(refusal)))
    if isinstance(group, ClassicGroup):
        turn.take_over(end_classic(group, now_ms, config))
    return turn.outcome(answer)


def _answer_heartbeat(
    turn: ConsumerCommandContext, request: ConsumerHeartbeat
) -> ConsumerHeartbeatReply:
    """Refusal: nothing of it counts."""
    may_lack_member = request.member_epoch == JOIN_EPOCH and not request.requires_member
    if request.member == "" and may_lack_member:
        request = replace(request, member=str(uuid4()))
    check_shape(request)
    check_assignor(request.assignor, turn.config)
    if is_leaving(request):
        return _leave(turn, request)
    return beat(turn, request)


def _leave(turn: ConsumerCommandContext, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    member = get_member(turn.group, request.member, request.instance)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        # It keeps its partitions for its session, and whoever comes under its instance has them.
        turn.write_current(replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NOTHING))
        turn.cancel_timer(REBALANCE, member.id)
    else:
        expel(turn, [member])
    return ConsumerHeartbeatReply(
        error=ErrorCode.NONE, member=member.id, member_epoch=request.member_epoch
    )


def join(
    group: ConsumerGroup, request: JoinGroup, now_ms: int, config: GroupConfig, topics: Topics
) -> GroupResult[JoinGroupReply]:
    """JoinGroup, to a group that has members; one without gives way to a classic group."""
    turn = ConsumerCommandContext(group, now_ms, config, topics)
    was_mixed = has_modern(group)
    try:
        answer = consumer_classic.join(turn, request)
    except Refusal as refusal:
        return GroupResult(answer=JoinGroupReply(error=refusal.code, member=request.member))
    if was_mixed:
        # It may have taken the place of the last one of the newer protocol, with what that had.
        try_downgrade(turn, is_settled=True)
    return turn.outcome(answer)


def on_timer(
    group: ConsumerGroup | ClassicGroup,
    key: TimerKey,
    now_ms: int,
    config: GroupConfig,
    topics: Topics,
) -> GroupResult[None]:
    if isinstance(group, ClassicGroup):
        if key.kind == DOWNGRADED:
            return call_members(group, now_ms, config)
        return GroupResult(answer=None)
    turn = ConsumerCommandContext(group, now_ms, config, topics)
    member = group.members.get(key.member)
    if member is not None and _is_over(member, key.kind):
        expel(turn, [member])
    return turn.outcome(None)


def _is_over(member: ConsumerMember, kind: str) -> bool:
    if kind == REBALANCE:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    return kind in (SESSION, JOIN, SYNC)


def on_loaded(
    group: ConsumerGroup, now_ms: int, config: GroupConfig, topics: Topics
) -> GroupResult[None]:
    """After its records were read: every member has its time to be heard of."""
    turn = ConsumerCommandContext(group, now_ms, config, topics)
    for member in group.members.values():
        turn.hear_from(member)
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            turn.set_timer(REBALANCE, member.subscription.rebalance_timeout_ms, member.id)
    return turn.outcome(None)


def session_timer(group: ConsumerGroup, member: str, config: GroupConfig) -> Sequence[SetTimer]:
    """A classic member that commits is alive; others say so by heartbeats alone."""
    known = group.members.get(member)
    if known is None or not known.is_classic:
        return ()
    key = TimerKey(group.name, SESSION, member)
    return (SetTimer(key, session_timeout_ms(known, config)),)


def delete(group: ConsumerGroup) -> GroupResult[ErrorCode]:
    """Its offsets are the caller's to take away too."""
    if group.members:
        return GroupResult(answer=ErrorCode.NON_EMPTY_GROUP)
    return GroupResult(answer=ErrorCode.NONE, records=tombstones(group))
