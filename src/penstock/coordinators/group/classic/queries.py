"""What may be asked about a classic group, and what may be done to the offsets under its name.

Nothing changes here.
"""

from penstock.coordinators.group.classic.state import ClassicGroup, ClassicState, Member
from penstock.coordinators.group.classic.subscription import CONSUMER, find_subscribed_topics
from penstock.coordinators.group.requests import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    DescribedGroup,
    DescribedMember,
    GroupListing,
)
from penstock.model.errors import ErrorCode

CLASSIC = "classic"


def check_commit(
    group: ClassicGroup,
    member: str,
    instance: str | None,
    generation: int,
    *,
    is_transactional: bool = False,
) -> ErrorCode:
    """Who may commit offsets: a member of this generation, or anyone while there are none.

    A transaction carries its own fence (KIP-447), so it may come without a member and during a
    rebalance.
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
        # It has heard of the generation, but nobody has been assigned anything in it yet.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def check_delete(group: ClassicGroup) -> ErrorCode:
    if group.state is ClassicState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not ClassicState.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def check_delete_offsets(group: ClassicGroup, topic: str) -> ErrorCode:
    """Offsets that a member may still want are not taken away."""
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


def expiry_base_ms(group: ClassicGroup, topic: str, committed_ms: int) -> int | None:
    """When the retention of a committed offset begins; None: it does not expire for now."""
    if group.protocol_type is None:
        return committed_ms  # no group ever, only offsets
    if group.state is ClassicState.EMPTY:
        # Offsets may be set while nobody is there: those are not as old as the emptiness.
        return max(group.state_since_ms, committed_ms)
    if group.state is ClassicState.STABLE:
        topics = find_subscribed_topics(group)
        if topics is not None and topic not in topics:
            return committed_ms
    return None


def describe(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group=group.name,
        error=ErrorCode.NONE,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if is_stable else "",
        members=tuple(
            _describe_member(each, group.protocol if is_stable else None)
            for each in group.members.values()
        ),
    )


def _describe_member(member: Member, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member=member.id,
        instance=member.instance,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.find_metadata(protocol) or b"",
        assignment=member.assignment,
    )


def list_group(group: ClassicGroup) -> GroupListing:
    return GroupListing(group.name, group.protocol_type or "", group.state.value, CLASSIC)
