"""Upgrades a classic group to a consumer group when a consumer member joins it.

The new group takes over members, assignments and the generation as its epoch, in one batch with the
tombstone of the old. Classic members stay and are told to join again when something changes.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace

from penstock.coordinators.group.classic.group import ClassicGroup
from penstock.coordinators.group.classic.state import ClassicGroupState, ClassicMember
from penstock.coordinators.group.classic.subscription import CONSUMER
from penstock.coordinators.group.command_context import CommandEnvironment
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.context import ConsumerCommandContext
from penstock.coordinators.group.consumer.embedded_protocol import (
    read_assignment,
    read_subscription,
    with_topic_ids,
)
from penstock.coordinators.group.consumer.heartbeat import handle_heartbeat, refuse_heartbeat
from penstock.coordinators.group.consumer.partitions import (
    NOTHING,
    Partitions,
    to_topics,
    together,
    without,
)
from penstock.coordinators.group.consumer.requests import (
    JOIN_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.consumer.state import (
    ConsumerGroupState,
    ConsumerMember,
    MemberState,
)
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import (
    ClassicMembership,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberValue,
    GroupRecord,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.coordinator_values import MalformedRecord

_POLICIES = ("upgrade", "bidirectional")


def upgrade_on_heartbeat(
    old: ClassicGroup, request: ConsumerHeartbeat, environment: CommandEnvironment
) -> CoordinatorResult[ConsumerHeartbeatReply, GroupRecord]:
    """The heartbeat of a consumer member to a classic group, which the new group replaces. Clients
    that wait in the classic group are told to join again, which leads to the new one."""
    context = ConsumerCommandContext(ConsumerGroupState(name=old.name), environment)
    try:
        _upgrade(context, old, request)
        reply = handle_heartbeat(context, request)
    except Refusal as refusal:
        return CoordinatorResult(reply=refuse_heartbeat(refusal))
    released = old.release(ErrorCode.REBALANCE_IN_PROGRESS, environment)
    context.prepend(replace(released, records=old.tombstones()))
    return context.result(reply)


def _upgrade(
    context: ConsumerCommandContext, old: ClassicGroupState, request: ConsumerHeartbeat
) -> None:
    """Refusal: the classic group cannot be upgraded, and stays as it is."""
    if request.member_epoch != JOIN_EPOCH:
        raise Refusal(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {old.name} uses the classic protocol; join it again",
        )
    if not old.members:
        return
    _check(context.config, old)
    # A member that never got a reply has no id yet; told to join again, it joins as a new one.
    answered = [member for member in old.members.values() if not member.is_new]
    members = _with_owned_partitions(
        [_convert(member, old, context.topics) for member in answered], context
    )
    for member in members:
        context.write_member(member.id, member.subscription)
    context.write(ConsumerGroupKey(old.name), ConsumerGroupValue(old.generation))
    for member in members:
        target = TargetMemberValue(to_topics(member.assigned))
        context.write(TargetMemberKey(old.name, member.id), target)
    context.write(TargetEpochKey(old.name), TargetEpochValue(old.generation))
    for member in members:
        context.write_current(member)
        context.reset_session(member)


def _check(config: GroupConfig, old: ClassicGroupState) -> None:
    if config.consumer_migration_policy not in _POLICIES:
        raise _not_upgradable(old, "group.consumer.migration.policy forbids an upgrade")
    if old.protocol_type != CONSUMER:
        raise _not_upgradable(old, f"its protocol type is {old.protocol_type}, not consumer")
    if len(old.members) >= config.consumer_max_size:
        raise _not_upgradable(old, "it has more members than group.consumer.max.size allows")


def _convert(member: ClassicMember, old: ClassicGroupState, topics: Topics) -> ConsumerMember:
    """The protocol in use comes first: later subscriptions and assignments use it."""
    protocols = sorted(member.protocols, key=lambda protocol: protocol.name != old.protocol)
    try:
        subscription = read_subscription(protocols[0].metadata)
        assigned = read_assignment(member.assignment, topics)
    except MalformedRecord as error:
        raise _not_upgradable(
            old, f"the subscription or assignment of member {member.id} cannot be decoded: {error}"
        ) from None
    return ConsumerMember(
        id=member.id,
        subscription=ConsumerMemberValue(
            instance=member.instance,
            rack=subscription.rack,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=tuple(sorted(set(subscription.topics))),
            topic_regex=None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assignor=None,
            classic=ClassicMembership(
                member.session_timeout_ms,
                tuple((protocol.name, protocol.metadata) for protocol in protocols),
            ),
        ),
        epoch=old.generation,
        previous_epoch=old.generation,
        assigned=assigned,
    )


def _with_owned_partitions(
    members: Sequence[ConsumerMember], context: ConsumerCommandContext
) -> list[ConsumerMember]:
    """A member may still own what its last assignment took away: it reported it when it joined, and
    has not joined since, as it does after a revocation."""
    assigned = functools.reduce(together, (member.assigned for member in members), NOTHING)
    owners: list[ConsumerMember] = []
    for member in members:
        unrevoked = without(_reported_owned(member, context.topics), assigned)
        if unrevoked:
            state = MemberState.UNREVOKED_PARTITIONS
            member = replace(member, state=state, pending_revocation=unrevoked)
        owners.append(member)
    return owners


def _reported_owned(member: ConsumerMember, topics: Topics) -> Partitions:
    classic = member.subscription.classic
    assert classic is not None
    return with_topic_ids(read_subscription(classic.protocols[0][1]).owned, topics)


def _not_upgradable(old: ClassicGroupState, why: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND, f"group {old.name} uses the classic protocol: {why}"
    )
