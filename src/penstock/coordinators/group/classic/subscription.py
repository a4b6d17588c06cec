"""Reads the topics that a consumer subscribes to from its JoinGroup metadata.

Only the part common to all versions of a consumer's subscription. Other protocol types have
metadata of their own, which the broker does not know.
"""

from penstock.coordinators.group.classic.state import ClassicGroupState, ClassicMember
from penstock.coordinators.group.requests import MemberProtocol
from penstock.protocol.coordinator_values import ValueReader
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.request_budget import RequestBudget

CONSUMER = "consumer"  # the protocol type of consumers


def find_topics(metadata: bytes) -> frozenset[str] | None:
    """None: this is not a consumer's subscription, or one of too many topics."""
    reader = ValueReader(metadata, flexible=False, budget=RequestBudget())
    try:
        reader.int16()  # version
        return frozenset(reader.array(ValueReader.string))
    except MalformedMessage:
        return None


def find_subscribed_topics(group: ClassicGroupState) -> frozenset[str] | None:
    """None: the members' subscriptions are unknown."""
    if group.protocol_type != CONSUMER:
        return None
    subscribed: set[str] = set()
    for member in group.members.values():
        metadata = member.find_metadata(group.protocol)
        topics = None if metadata is None else find_topics(metadata)
        if topics is None:
            return None
        subscribed |= topics
    return frozenset(subscribed)


def has_same_subscription(
    group: ClassicGroupState, member: ClassicMember, protocols: tuple[MemberProtocol, ...]
) -> bool:
    """Whether a member that returns with these protocols can keep its assignment.

    Owned partitions and start time may differ, the topics of a consumer may not.
    """
    before = member.find_metadata(group.protocol)
    after = next(
        (protocol.metadata for protocol in protocols if protocol.name == group.protocol), None
    )
    if before is None or after is None or before == after:
        return before == after
    if group.protocol_type != CONSUMER:
        return False
    topics = find_topics(after)
    return topics is not None and topics == find_topics(before)
