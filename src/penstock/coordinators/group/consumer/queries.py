"""What may be asked about a consumer group, and what may be done to the offsets under its name.

Nothing changes here.
"""

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.partitions import Partitions, to_topics
from penstock.coordinators.group.consumer.requests import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    MemberKind,
    NamedPartitions,
)
from penstock.coordinators.group.consumer.state import ConsumerGroup, ConsumerMember
from penstock.coordinators.group.consumer.target_assignment import is_subscribed, preferred_assignor
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.requests import UNKNOWN_MEMBER, GroupListing
from penstock.model.errors import ErrorCode

CONSUMER = "consumer"  # the kind of the group, and its protocol type as well


def check_commit(
    group: ConsumerGroup,
    member: str,
    epoch: int,
    *,
    knows_epochs: bool,
    is_transactional: bool = False,
) -> ErrorCode:
    """Who may commit offsets: a member at its epoch, or anyone while there are none.

    `knows_epochs`: the request is of a version that can be told that its epoch is old.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if is_transactional and epoch < 0 and member == UNKNOWN_MEMBER:
        return ErrorCode.NONE  # a transaction carries its own fence
    known = group.members.get(member)
    if known is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not (knows_epochs or known.is_classic or is_transactional):
        return ErrorCode.UNSUPPORTED_VERSION
    code = _check_epoch(known, epoch)
    # Of transactions no version knows the newer code.
    is_stale = code is ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION if is_transactional and is_stale else code


def check_fetch(group: ConsumerGroup, member: str | None, epoch: int) -> ErrorCode:
    """Whoever claims no membership may look; a member only at its epoch."""
    if member is None and epoch < 0:
        return ErrorCode.NONE
    known = group.members.get(member or "")
    return ErrorCode.UNKNOWN_MEMBER_ID if known is None else _check_epoch(known, epoch)


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def check_delete(group: ConsumerGroup) -> ErrorCode:
    return ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE


def check_delete_offsets(group: ConsumerGroup, topic: str) -> ErrorCode:
    """Offsets that a member may still want are not taken away."""
    wanted = has_subscriber(group, topic)
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if wanted else ErrorCode.NONE


def expiry_base_ms(group: ConsumerGroup, topic: str, committed_ms: int) -> int | None:
    """When the retention of a committed offset begins; None: it does not expire for now."""
    return None if has_subscriber(group, topic) else committed_ms


def has_subscriber(group: ConsumerGroup, topic: str) -> bool:
    return any(is_subscribed(each.subscription, topic) for each in group.members.values())


def list_group(group: ConsumerGroup) -> GroupListing:
    return GroupListing(group.name, CONSUMER, group.state.value, CONSUMER)


def describe(group: ConsumerGroup, config: GroupConfig, topics: Topics) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group=group.name,
        error=ErrorCode.NONE,
        state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor=preferred_assignor(group, config),
        members=tuple(_describe_member(group, each, topics) for each in group.members.values()),
    )


def _describe_member(
    group: ConsumerGroup, member: ConsumerMember, topics: Topics
) -> DescribedConsumerMember:
    subscription = member.subscription
    return DescribedConsumerMember(
        member=member.id,
        instance=subscription.instance,
        rack=subscription.rack,
        member_epoch=member.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        topics=subscription.topics,
        topic_regex=subscription.topic_regex,
        assignment=_named(member.assigned, topics),
        target=_named(group.target(member.id), topics),
        kind=MemberKind.CLASSIC if member.is_classic else MemberKind.CONSUMER,
    )


def _named(partitions: Partitions, topics: Topics) -> tuple[NamedPartitions, ...]:
    """Without topics that are gone."""
    return tuple(
        NamedPartitions(topic_id, name, numbers)
        for topic_id, numbers in to_topics(partitions)
        if (name := topics.find_name(topic_id)) is not None
    )
