"""A classic group becomes one of the newer protocol when a member of that joins it.

The new group takes over members, assignments and the count of generations, in one batch with the
tombstone of the old. Classic members stay: they are called to join again when something changes.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace

from penstock.coordinators.group.classic import protocol as classic
from penstock.coordinators.group.classic.state import ClassicGroup, Member
from penstock.coordinators.group.classic.subscription import CONSUMER
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.context import ConsumerCommandContext
from penstock.coordinators.group.consumer.embedded_protocol import (
    identified,
    read_assignment,
    read_subscription,
)
from penstock.coordinators.group.consumer.partitions import (
    NOTHING,
    Partitions,
    to_topics,
    together,
    without,
)
from penstock.coordinators.group.consumer.requests import JOIN_EPOCH, ConsumerHeartbeat
from penstock.coordinators.group.consumer.state import ConsumerMember, MemberState
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import (
    ClassicMembership,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from penstock.coordinators.group.result import GroupResult
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.coordinator_values import MalformedRecord

_POLICIES = ("upgrade", "bidirectional")


def upgrade(turn: ConsumerCommandContext, old: ClassicGroup, request: ConsumerHeartbeat) -> None:
    """Refusal: the classic group is in the way, and stays as it is."""
    if request.member_epoch != JOIN_EPOCH:
        raise Refusal(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {old.name} uses the classic protocol; join it again",
        )
    if not old.members:
        return
    _check(turn.config, old)
    # One that has never been answered is told to join again: it comes as if for the first time.
    known = [each for each in old.members.values() if not each.is_new]
    members = _keep_what_they_have([_convert(each, old, turn.topics) for each in known], turn)
    for member in members:
        turn.write_member(member.id, member.subscription)
    turn.write(ConsumerGroupKey(old.name), ConsumerGroupValue(old.generation))
    for member in members:
        target = TargetMemberValue(to_topics(member.assigned))
        turn.write(TargetMemberKey(old.name, member.id), target)
    turn.write(TargetEpochKey(old.name), TargetEpochValue(old.generation))
    for member in members:
        turn.write_current(member)
        turn.hear_from(member)


def end_classic(old: ClassicGroup, now_ms: int, config: GroupConfig) -> GroupResult[None]:
    """Whoever waits in it is told to join again, which leads to the new group."""
    released = classic.release(old, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, config)
    return replace(released, records=(classic.tombstone(old),))


def _check(config: GroupConfig, old: ClassicGroup) -> None:
    if config.consumer_migration_policy not in _POLICIES:
        raise _in_the_way(old, "group.consumer.migration.policy does not let it change")
    if old.protocol_type != CONSUMER:
        raise _in_the_way(old, f"its members are no consumers but of type {old.protocol_type}")
    if len(old.members) >= config.consumer_max_size:
        raise _in_the_way(old, "it has more members than group.consumer.max.size allows")


def _convert(member: Member, old: ClassicGroup, topics: Topics) -> ConsumerMember:
    """The protocol in use comes first: it is what the member is asked and told in."""
    protocols = sorted(member.protocols, key=lambda each: each.name != old.protocol)
    try:
        wanted = read_subscription(protocols[0].metadata)
        assigned = read_assignment(member.assignment, topics)
    except MalformedRecord as error:
        raise _in_the_way(old, f"what member {member.id} told it cannot be read: {error}") from None
    return ConsumerMember(
        id=member.id,
        subscription=ConsumerMemberValue(
            instance=member.instance,
            rack=wanted.rack,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=tuple(sorted(set(wanted.topics))),
            topic_regex=None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assignor=None,
            classic=ClassicMembership(
                member.session_timeout_ms,
                tuple((each.name, each.metadata) for each in protocols),
            ),
        ),
        epoch=old.generation,
        previous_epoch=old.generation,
        assigned=assigned,
    )


def _keep_what_they_have(
    members: Sequence[ConsumerMember], turn: ConsumerCommandContext
) -> list[ConsumerMember]:
    """A member may still have what its last assignment took away: it said so when it joined, and
    has not joined since, as it does when it has given them up."""
    assigned = functools.reduce(together, (each.assigned for each in members), NOTHING)
    kept: list[ConsumerMember] = []
    for member in members:
        held = without(_said_to_own(member, turn.topics), assigned)
        if held:
            state = MemberState.UNREVOKED_PARTITIONS
            member = replace(member, state=state, pending_revocation=held)
        kept.append(member)
    return kept


def _said_to_own(member: ConsumerMember, topics: Topics) -> Partitions:
    classic = member.subscription.classic
    assert classic is not None
    return identified(read_subscription(classic.protocols[0][1]).owned, topics)


def _in_the_way(old: ClassicGroup, why: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND, f"group {old.name} uses the classic protocol: {why}"
    )
