"""Read-only views of a consumer group, and which clients may change its offsets."""

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.partitions import Partitions, to_topics
from penstock.coordinators.group.consumer.requests import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    MemberKind,
    NamedPartitions,
)
from penstock.coordinators.group.consumer.state import ConsumerGroupState, ConsumerMember
from penstock.coordinators.group.consumer.target_assignment import is_subscribed, preferred_assignor
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.requests import UNKNOWN_MEMBER, GroupSummary
from penstock.model.errors import ErrorCode

CONSUMER = "consumer"  # the group type, and its protocol type as well


def check_commit(
    group: ConsumerGroupState,
    member: str,
    epoch: int,
    *,
    knows_epochs: bool,
    is_transactional: bool = False,
) -> ErrorCode:
    """A member at its epoch may commit offsets, or anyone while the group is empty.

    `knows_epochs`: the request version has STALE_MEMBER_EPOCH.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if is_transactional and epoch < 0 and member == UNKNOWN_MEMBER:
        return ErrorCode.NONE  # a transaction is fenced by its producer epoch
    committer = group.members.get(member)
    if committer is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not (knows_epochs or committer.is_classic or is_transactional):
        return ErrorCode.UNSUPPORTED_VERSION
    code = _check_epoch(committer, epoch)
    # No version of TxnOffsetCommit has the newer code.
    is_stale = code is ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION if is_transactional and is_stale else code


def check_fetch(group: ConsumerGroupState, member: str | None, epoch: int) -> ErrorCode:
    """A client without member id may fetch; a member only at its epoch."""
    if member is None and epoch < 0:
        return ErrorCode.NONE
    fetcher = group.members.get(member or "")
    return ErrorCode.UNKNOWN_MEMBER_ID if fetcher is None else _check_epoch(fetcher, epoch)


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def check_delete_offsets(group: ConsumerGroupState, topic: str) -> ErrorCode:
    """Offsets of a topic that a member may be reading are not deleted."""
    is_read = has_subscriber(group, topic)
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE


def expiry_base_ms(group: ConsumerGroupState, topic: str, committed_ms: int) -> int | None:
    return None if has_subscriber(group, topic) else committed_ms


def has_subscriber(group: ConsumerGroupState, topic: str) -> bool:
    return any(is_subscribed(member.subscription, topic) for member in group.members.values())


def list_group(group: ConsumerGroupState) -> GroupSummary:
    return GroupSummary(group.name, CONSUMER, group.state.value, CONSUMER)


def describe(
    group: ConsumerGroupState, config: GroupConfig, topics: Topics
) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group=group.name,
        error=ErrorCode.NONE,
        state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor=preferred_assignor(group, config),
        members=tuple(_describe_member(group, member, topics) for member in group.members.values()),
    )


def _describe_member(
    group: ConsumerGroupState, member: ConsumerMember, topics: Topics
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
    """The partitions with topic names; deleted topics are omitted."""
    return tuple(
        NamedPartitions(topic_id, name, numbers)
        for topic_id, numbers in to_topics(partitions)
        if (name := topics.find_name(topic_id)) is not None
    )
