"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

For them a member epoch is a generation, joining is a full heartbeat, and a change of assignment
means to join again. The broker assigns their partitions, so none of them is a leader.
"""

from collections.abc import Sequence
from uuid import uuid4

from penstock.coordinators.group.classic.subscription import CONSUMER
from penstock.coordinators.group.command_context import CommandEnvironment, describe_members
from penstock.coordinators.group.consumer.context import JOIN, SYNC, ConsumerCommandContext
from penstock.coordinators.group.consumer.downgrade import has_consumer_members, try_downgrade
from penstock.coordinators.group.consumer.embedded_protocol import (
    ConsumerSubscription,
    read_subscription,
    with_topic_ids,
    write_assignment,
)
from penstock.coordinators.group.consumer.heartbeat import reconcile_member, update_member
from penstock.coordinators.group.consumer.members import get_member, replace_static
from penstock.coordinators.group.consumer.partitions import without
from penstock.coordinators.group.consumer.state import (
    ConsumerGroupState,
    ConsumerMember,
    MemberState,
)
from penstock.coordinators.group.consumer.target_assignment import update_target
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.limits import CONSUMER_MAX_SIZE, LimitReached, find_limit
from penstock.coordinators.group.records import (
    ClassicMembership,
    ConsumerMemberValue,
    GroupRecord,
)
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
from penstock.coordinators.runtime.result import CoordinatorResult, Waiter
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.coordinator_values import MalformedRecord


def join(
    group: ConsumerGroupState, request: JoinGroup, _: Waiter, environment: CommandEnvironment
) -> CoordinatorResult[JoinGroupReply, GroupRecord]:
    """Join a group that has members; an empty one is replaced by a classic group."""
    context = ConsumerCommandContext(group, environment)
    had_consumer_members = has_consumer_members(group)
    try:
        reply = _join(context, request)
    except Refusal as refusal:
        reply = JoinGroupReply(error=refusal.code, member=request.member, limit=find_limit(refusal))
        return CoordinatorResult(reply=reply)
    if had_consumer_members:
        # It may have replaced the last consumer member, as the same instance.
        try_downgrade(context, is_settled=True)
    return context.result(reply)


def _join(context: ConsumerCommandContext, request: JoinGroup) -> JoinGroupReply:
    """Refusal: the request changes nothing."""
    group, config = context.group, context.config
    shortest_ms, longest_ms = config.min_session_timeout_ms, config.max_session_timeout_ms
    if not shortest_ms <= request.session_timeout_ms <= longest_ms:
        raise Refusal(ErrorCode.INVALID_SESSION_TIMEOUT)
    _check_protocols(group, request)
    is_unknown = request.member == UNKNOWN_MEMBER and request.instance is None
    if is_unknown and request.requires_known_member:
        return JoinGroupReply(error=ErrorCode.MEMBER_ID_REQUIRED, member=_new_id(request))
    before = _find_or_create(context, request)
    subscription = _read(request)
    has_changed = update_member(context, before, _to_record(request, subscription))
    update_target(context, has_changed=has_changed)
    after = reconcile_member(context, before.id, with_topic_ids(subscription.owned, context.topics))
    group.rejoining.discard(after.id)
    context.cancel_timer(JOIN, after.id)
    context.set_timer(SYNC, request.rebalance_timeout_ms, after.id)
    context.reset_session(after)
    return JoinGroupReply(
        error=ErrorCode.NONE,
        member=after.id,
        generation=after.epoch,
        protocol_type=CONSUMER,
        protocol=request.protocols[0].name,
    )


def _check_protocols(group: ConsumerGroupState, request: JoinGroup) -> None:
    supported = {protocol.name for protocol in request.protocols}
    for member in group.members.values():
        classic = member.subscription.classic
        if classic is not None and member.id != request.member:
            supported &= {name for name, _ in classic.protocols}
    if request.protocol_type != CONSUMER or not supported:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _find_or_create(context: ConsumerCommandContext, request: JoinGroup) -> ConsumerMember:
    group = context.group
    holder = group.find_instance(request.instance)
    if request.member != UNKNOWN_MEMBER and request.instance is not None:
        return get_member(group, request.member, request.instance)
    if request.member in group.members:
        return group.members[request.member]
    member_id = request.member if request.member != UNKNOWN_MEMBER else _new_id(request)
    if holder is not None:
        return replace_static(context, holder, member_id)
    if len(group.members) >= context.config.consumer_max_size:
        raise LimitReached(CONSUMER_MAX_SIZE)
    return ConsumerMember(id=member_id)


def _new_id(request: JoinGroup) -> str:
    return f"{request.instance or request.client_id}-{uuid4()}"


def _read(request: JoinGroup) -> ConsumerSubscription:
    """All protocols of a consumer carry the same subscription."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except MalformedRecord as error:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None


def _to_record(request: JoinGroup, subscription: ConsumerSubscription) -> ConsumerMemberValue:
    return ConsumerMemberValue(
        instance=request.instance,
        rack=subscription.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        topic_regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMembership(
            request.session_timeout_ms,
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        ),
    )


def sync(
    group: ConsumerGroupState, request: SyncGroup, _: Waiter, environment: CommandEnvironment
) -> CoordinatorResult[SyncGroupReply, GroupRecord]:
    context = ConsumerCommandContext(group, environment)
    try:
        member = _get_classic(group, request.member, request.instance, request.generation)
        _check_sync(member, request)
    except Refusal as refusal:
        return CoordinatorResult(reply=SyncGroupReply(error=refusal.code))
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _require_join(context, member)
        return context.result(SyncGroupReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
    context.cancel_timer(SYNC, member.id)
    context.reset_session(member)
    return context.result(
        SyncGroupReply(
            error=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol=request.protocol,
            assignment=assignment_of(member, context.topics),
        )
    )


def assignment_of(member: ConsumerMember, topics: Topics) -> bytes:
    """Its assignment, in the version of its subscription."""
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
    group: ConsumerGroupState, request: Heartbeat, environment: CommandEnvironment
) -> CoordinatorResult[ErrorCode, GroupRecord]:
    context = ConsumerCommandContext(group, environment)
    try:
        member = _get_classic(group, request.member, request.instance, request.generation)
    except Refusal as refusal:
        return CoordinatorResult(reply=refusal.code)
    context.reset_session(member)
    if not _should_join_again(group, member):
        return context.result(ErrorCode.NONE)
    _require_join(context, member)
    return context.result(ErrorCode.REBALANCE_IN_PROGRESS)


def _should_join_again(group: ConsumerGroupState, member: ConsumerMember) -> bool:
    """There is a new epoch, a partition to revoke, or everything that it waited for is free."""
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = without(group.target(member.id), member.assigned)
    return not without(missing, group.free_for(member.id, missing))


def _require_join(context: ConsumerCommandContext, member: ConsumerMember) -> None:
    """Its rebalance time-out starts with the first REBALANCE_IN_PROGRESS."""
    if member.id not in context.group.rejoining:
        context.group.rejoining.add(member.id)
        context.set_timer(JOIN, member.subscription.rebalance_timeout_ms, member.id)


def _get_classic(
    group: ConsumerGroupState, member_id: str, instance: str | None, generation: int
) -> ConsumerMember:
    member = get_member(group, member_id, instance)
    if not member.is_classic:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.epoch:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    return member


def leave(
    group: ConsumerGroupState,
    leavers: Sequence[LeavingMember],
    environment: CommandEnvironment,
) -> CoordinatorResult[tuple[ErrorCode, tuple[LeaveResult, ...]], GroupRecord]:
    context = ConsumerCommandContext(group, environment)
    results = tuple(_remove_leaving(context, member) for member in leavers)
    if len(context.group.members) < len(group.members):
        gone = [member_id for member_id in group.members if member_id not in context.group.members]
        context.bump_epoch(f"{describe_members(gone)} left")
    return context.result((ErrorCode.NONE, results))


def _remove_leaving(context: ConsumerCommandContext, leaver: LeavingMember) -> LeaveResult:
    try:
        member = _get_leaving(context.group, leaver)
    except Refusal as refusal:
        return LeaveResult(leaver.member, leaver.instance, refusal.code)
    context.remove(member.id)
    return LeaveResult(member.id, leaver.instance, ErrorCode.NONE)


def _get_leaving(group: ConsumerGroupState, leaver: LeavingMember) -> ConsumerMember:
    holder = group.find_instance(leaver.instance)
    if holder is not None and leaver.member == UNKNOWN_MEMBER:
        member = holder  # an operator removes a static member, whatever its id is now
    else:
        member = get_member(group, leaver.member, leaver.instance)
    if not member.is_classic:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    return member
