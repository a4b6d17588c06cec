"""The newer group protocol (KIP-848) as deciders: a group and an event in, an Outcome out.

No clock, no log, no connection. `now_ms` is the wall clock's; time-outs are delays that the
coordinator measures. Queries are in `consumer_queries`, the change of a classic group into one of
these and back in `consumer_conversion`.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from penstock.groups.config import GroupConfig
from penstock.groups.consumer_heartbeat import beat
from penstock.groups.consumer_members import check_shape, get_member, is_leaving
from penstock.groups.consumer_partitions import NOTHING
from penstock.groups.consumer_requests import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from penstock.groups.consumer_state import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerState,
    MemberState,
    replay,
)
from penstock.groups.consumer_target import check_assignor
from penstock.groups.consumer_turn import (
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    TIMERS,
    ConsumerTurn,
    session_timeout_ms,
)
from penstock.groups.outcome import Outcome, SetTimer, TimerKey
from penstock.groups.ports import Topics
from penstock.groups.records import (
    ConsumerGroupKey,
    ConsumerTopicsKey,
    GroupRecord,
    TargetEpochKey,
)
from penstock.model.errors import ErrorCode, Refusal

__all__ = [
    "TIMERS",
    "ConsumerGroup",
    "ConsumerState",
    "delete",
    "heartbeat",
    "on_loaded",
    "on_timer",
    "replay",
    "session_timer",
    "tombstones",
]


def heartbeat(
    group: ConsumerGroup | None,
    request: ConsumerHeartbeat,
    now_ms: int,
    config: GroupConfig,
    topics: Topics,
) -> Outcome[ConsumerHeartbeatAnswer]:
    """None: there is no group of that name, which joining changes."""
    turn = ConsumerTurn(group or ConsumerGroup(request.group), now_ms, config, topics)
    try:
        return turn.outcome(answer_heartbeat(turn, request))
    except Refusal as refusal:
        return Outcome(answer=refused(refusal))


def answer_heartbeat(turn: ConsumerTurn, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
    """Refusal: nothing of it counts."""
    may_lack_member = request.member_epoch == JOIN_EPOCH and not request.requires_member
    if request.member == "" and may_lack_member:
        request = replace(request, member=str(uuid4()))
    check_shape(request)
    check_assignor(request.assignor, turn.config)
    if is_leaving(request):
        return _leave(turn, request)
    return beat(turn, request)


def refused(refusal: Refusal) -> ConsumerHeartbeatAnswer:
    return ConsumerHeartbeatAnswer(error=refusal.code, message=str(refusal))


def _leave(turn: ConsumerTurn, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
    member = get_member(turn.group, request.member, request.instance)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        # It keeps its partitions for its session, and whoever comes under its instance has them.
        turn.write_current(replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NOTHING))
        turn.cancel_timer(REBALANCE, member.id)
    else:
        expel(turn, member)
    return ConsumerHeartbeatAnswer(
        error=ErrorCode.NONE, member=member.id, member_epoch=request.member_epoch
    )


def expel(turn: ConsumerTurn, *members: ConsumerMember) -> None:
    """The rest is assigned anew with the next heartbeat."""
    for member in members:
        turn.remove(member.id)
    turn.bump_epoch()


def on_timer(
    group: ConsumerGroup, key: TimerKey, now_ms: int, config: GroupConfig, topics: Topics
) -> Outcome[None]:
    turn = ConsumerTurn(group, now_ms, config, topics)
    member = group.members.get(key.member)
    if member is not None and _is_over(member, key.kind):
        expel(turn, member)
    return turn.outcome(None)


def _is_over(member: ConsumerMember, kind: str) -> bool:
    if kind == REBALANCE:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    return kind in (SESSION, JOIN, SYNC)


def on_loaded(
    group: ConsumerGroup, now_ms: int, config: GroupConfig, topics: Topics
) -> Outcome[None]:
    """After its records were read: every member has its time to be heard of."""
    turn = ConsumerTurn(group, now_ms, config, topics)
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


def delete(group: ConsumerGroup) -> Outcome[ErrorCode]:
    """Its offsets are the caller's to take away too."""
    if group.members:
        return Outcome(answer=ErrorCode.NON_EMPTY_GROUP)
    return Outcome(answer=ErrorCode.NONE, records=tombstones(group))


def tombstones(group: ConsumerGroup) -> Sequence[GroupRecord]:
    """Of a group without members, whose own have gone with them."""
    assert not group.members, f"group {group.name} still has {len(group.members)} members"
    return (
        GroupRecord(TargetEpochKey(group.name), None),
        GroupRecord(ConsumerTopicsKey(group.name), None),
        GroupRecord(ConsumerGroupKey(group.name), None),
    )
