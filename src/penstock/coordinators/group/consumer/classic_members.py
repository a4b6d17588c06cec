"""Classic members in a group of the newer protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

For them a member epoch is a generation, joining is a heartbeat that says everything, and a change
means to join again. They are assigned by the broker, so none of them is a leader.
"""

from collections.abc import Sequence
from uuid import uuid4

from penstock.coordinators.group.classic.subscription import CONSUMER
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.context import JOIN, SYNC, ConsumerCommandContext
from penstock.coordinators.group.consumer.embedded_protocol import (
    ConsumerSubscription,
    identified,
    read_subscription,
    write_assignment,
)
from penstock.coordinators.group.consumer.heartbeat import advance, update_member
from penstock.coordinators.group.consumer.members import get_member, replace_static
from penstock.coordinators.group.consumer.partitions import without
from penstock.coordinators.group.consumer.state import ConsumerGroup, ConsumerMember, MemberState
from penstock.coordinators.group.consumer.target_assignment import update_target
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import ClassicMembership, ConsumerMemberValue
from penstock.coordinators.group.requests import (
    UNKNOWN_MEMBER,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveResult,
    LeavingMember,
    SyncGroup,
    SyncGroupReply,
)
from penstock.coordinators.group.result import GroupResult
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.coordinator_values import MalformedRecord


def join(turn: ConsumerCommandContext, request: JoinGroup) -> JoinGroupReply:
    """Refusal: nothing of it counts. The group has members."""
    group, config = turn.group, turn.config
    shortest_ms, longest_ms = config.min_session_timeout_ms, config.max_session_timeout_ms
    if not shortest_ms <= request.session_timeout_ms <= longest_ms:
        raise Refusal(ErrorCode.INVALID_SESSION_TIMEOUT)
    _check_protocols(group, request)
    is_nobody = request.member == UNKNOWN_MEMBER and request.instance is None
    if is_nobody and request.requires_known_member:
        return JoinGroupReply(error=ErrorCode.MEMBER_ID_REQUIRED, member=_new_id(request))
    before = _find_or_create(turn, request)
    wanted = _read(request)
    has_changed = update_member(turn, before, _subscription(request, wanted))
    update_target(turn, has_changed=has_changed)
    after = advance(turn, before.id, identified(wanted.owned, turn.topics))
    group.rejoining.discard(after.id)
    turn.cancel_timer(JOIN, after.id)
    turn.set_timer(SYNC, request.rebalance_timeout_ms, after.id)
    turn.hear_from(after)
    return JoinGroupReply(
        error=ErrorCode.NONE,
        member=after.id,
        generation=after.epoch,
        protocol_type=CONSUMER,
        protocol=request.protocols[0].name,
    )


def _check_protocols(group: ConsumerGroup, request: JoinGroup) -> None:
    offered = {each.name for each in request.protocols}
    for member in group.members.values():
        classic = member.subscription.classic
        if classic is not None and member.id != request.member:
            offered &= {name for name, _ in classic.protocols}
    if request.protocol_type != CONSUMER or not offered:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _find_or_create(turn: ConsumerCommandContext, request: JoinGroup) -> ConsumerMember:
    group = turn.group
    holder = group.find_instance(request.instance)
    if request.member != UNKNOWN_MEMBER and request.instance is not None:
        return get_member(group, request.member, request.instance)
    if request.member in group.members:
        return group.members[request.member]
    member_id = request.member if request.member != UNKNOWN_MEMBER else _new_id(request)
    if holder is not None:
        return replace_static(turn, holder, member_id)
    if len(group.members) >= turn.config.consumer_max_size:
        raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)
    return ConsumerMember(id=member_id)


def _new_id(request: JoinGroup) -> str:
    return f"{request.instance or request.client_id}-{uuid4()}"


def _read(request: JoinGroup) -> ConsumerSubscription:
    """All protocols of a consumer say the same about what it wants."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except MalformedRecord as error:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None


def _subscription(request: JoinGroup, wanted: ConsumerSubscription) -> ConsumerMemberValue:
    return ConsumerMemberValue(
        instance=request.instance,
        rack=wanted.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=tuple(sorted(set(wanted.topics))),
        topic_regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMembership(
            request.session_timeout_ms,
            tuple((each.name, each.metadata) for each in request.protocols),
        ),
    )


def sync(
    group: ConsumerGroup, request: SyncGroup, now_ms: int, config: GroupConfig, topics: Topics
) -> GroupResult[SyncGroupReply]:
    turn = ConsumerCommandContext(group, now_ms, config, topics)
    try:
        member = _get_classic(group, request.member, request.instance, request.generation)
        _check_sync(member, request)
    except Refusal as refusal:
        return GroupResult(answer=SyncGroupReply(error=refusal.code))
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _call_to_join(turn, member)
        return turn.outcome(SyncGroupReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
    turn.cancel_timer(SYNC, member.id)
    turn.hear_from(member)
    return turn.outcome(
        SyncGroupReply(
            error=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol=request.protocol,
            assignment=assignment_of(member, topics),
        )
    )


def assignment_of(member: ConsumerMember, topics: Topics) -> bytes:
    """What it has, in the version that it speaks."""
    classic = member.subscription.classic
    assert classic is not None
    version = read_subscription(classic.protocols[0][1]).version
    return write_assignment(member.assigned, version, topics)


def _check_sync(member: ConsumerMember, request: SyncGroup) -> None:
    classic = member.subscription.classic
    assert classic is not None
    protocol, _ = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol not in (None, protocol):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def heartbeat(
    group: ConsumerGroup, request: Heartbeat, now_ms: int, config: GroupConfig, topics: Topics
) -> GroupResult[ErrorCode]:
    turn = ConsumerCommandContext(group, now_ms, config, topics)
    try:
        member = _get_classic(group, request.member, request.instance, request.generation)
    except Refusal as refusal:
        return GroupResult(answer=refusal.code)
    turn.hear_from(member)
    if not _should_join_again(group, member):
        return turn.outcome(ErrorCode.NONE)
    _call_to_join(turn, member)
    return turn.outcome(ErrorCode.REBALANCE_IN_PROGRESS)


def _should_join_again(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """There is a new epoch, something to give up, or everything that it waited for is free."""
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = without(group.target(member.id), member.assigned)
    return not without(missing, group.free_for(member.id, missing))


def _call_to_join(turn: ConsumerCommandContext, member: ConsumerMember) -> None:
    """It has its rebalance time-out from the first call on."""
    if member.id not in turn.group.rejoining:
        turn.group.rejoining.add(member.id)
        turn.set_timer(JOIN, member.subscription.rebalance_timeout_ms, member.id)


def _get_classic(
    group: ConsumerGroup, member_id: str, instance: str | None, generation: int
) -> ConsumerMember:
    member = get_member(group, member_id, instance)
    if not member.is_classic:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.epoch:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    return member


def leave(
    group: ConsumerGroup,
    leavers: Sequence[LeavingMember],
    now_ms: int,
    config: GroupConfig,
    topics: Topics,
) -> GroupResult[tuple[ErrorCode, tuple[LeaveResult, ...]]]:
    turn = ConsumerCommandContext(group, now_ms, config, topics)
    left = tuple(_take_leave(turn, each) for each in leavers)
    if len(turn.group.members) < len(group.members):
        turn.bump_epoch()
    return turn.outcome((ErrorCode.NONE, left))


def _take_leave(turn: ConsumerCommandContext, leaver: LeavingMember) -> LeaveResult:
    try:
        member = _find_leaver(turn.group, leaver)
    except Refusal as refusal:
        return LeaveResult(leaver.member, leaver.instance, refusal.code)
    turn.remove(member.id)
    return LeaveResult(member.id, leaver.instance, ErrorCode.NONE)


def _find_leaver(group: ConsumerGroup, leaver: LeavingMember) -> ConsumerMember:
    holder = group.find_instance(leaver.instance)
    if holder is not None and leaver.member == UNKNOWN_MEMBER:
        member = holder  # an operator removes a static member, whatever its id is now
    else:
        member = get_member(group, leaver.member, leaver.instance)
    if not member.is_classic:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    return member
