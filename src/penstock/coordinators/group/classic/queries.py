"""Read-only views of a classic group, and which clients may change its offsets."""

from penstock.coordinators.group.classic.state import ClassicGroupState, ClassicMember, ClassicState
from penstock.coordinators.group.classic.subscription import CONSUMER, find_subscribed_topics
from penstock.coordinators.group.requests import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    DescribedGroup,
    DescribedMember,
    GroupSummary,
)
from penstock.model.errors import ErrorCode

CLASSIC = "classic"


def check_commit(
    group: ClassicGroupState,
    member: str,
    instance: str | None,
    generation: int,
    *,
    is_transactional: bool = False,
) -> ErrorCode:
    """A member of this generation may commit offsets, or anyone while the group is empty.

    A transaction is fenced by its producer epoch (KIP-447), so its offsets may be committed without
    a member id and during a rebalance.
    """
    if group.state is ClassicState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    is_anonymous = generation <= NO_GENERATION and member == UNKNOWN_MEMBER and instance is None
    if group.state is ClassicState.EMPTY and generation <= NO_GENERATION:
        return ErrorCode.NONE
    if is_anonymous:
        return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(member, instance)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
        # The member knows the generation, but nothing is assigned in it yet.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def check_delete(group: ClassicGroupState) -> ErrorCode:
    if group.state is ClassicState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not ClassicState.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def check_delete_offsets(group: ClassicGroupState, topic: str) -> ErrorCode:
    """Offsets of a topic that a member may be reading are not deleted."""
    if group.state is ClassicState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is ClassicState.EMPTY:
        return ErrorCode.NONE
    if group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    topics = find_subscribed_topics(group)
    if topics is None or topic in topics:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def expiry_base_ms(group: ClassicGroupState, topic: str, committed_ms: int) -> int | None:
    if group.protocol_type is None:
        return committed_ms  # there never was a group, only offsets
    if group.state is ClassicState.EMPTY:
        # An offset committed while the group is empty is younger than its emptiness.
        return max(group.state_since_ms, committed_ms)
    if group.state is ClassicState.STABLE:
        topics = find_subscribed_topics(group)
        if topics is not None and topic not in topics:
            return committed_ms
    return None


def describe(group: ClassicGroupState) -> DescribedGroup:
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group=group.name,
        error=ErrorCode.NONE,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if is_stable else "",
        members=tuple(
            _describe_member(member, group.protocol if is_stable else None)
            for member in group.members.values()
        ),
    )


def _describe_member(member: ClassicMember, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member=member.id,
        instance=member.instance,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.find_metadata(protocol) or b"",
        assignment=member.assignment,
    )


def list_group(group: ClassicGroupState) -> GroupSummary:
    return GroupSummary(group.name, group.protocol_type or "", group.state.value, CLASSIC)
