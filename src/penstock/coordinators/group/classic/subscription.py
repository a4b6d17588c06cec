"""Reads which topics a consumer subscribes to from what it tells its group.

Only the part that every version of a consumer's subscription begins with; other kinds of groups
have metadata of their own, which the broker does not know.
"""

from penstock.coordinators.group.classic.state import ClassicGroup, Member
from penstock.coordinators.group.requests import MemberProtocol
from penstock.protocol.coordinator_values import MalformedRecord, ValueReader

CONSUMER = "consumer"  # the protocol type of consumers


def find_topics(metadata: bytes) -> frozenset[str] | None:
    """None: this is no consumer's subscription."""
    reader = ValueReader(metadata, flexible=False)
    try:
        reader.int16()  # its version
        return frozenset(reader.array(ValueReader.string))
    except MalformedRecord:
        return None


def find_subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """None: it is not known what the members subscribe to."""
    if group.protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        metadata = member.find_metadata(group.protocol)
        found = None if metadata is None else find_topics(metadata)
        if found is None:
            return None
        topics |= found
    return frozenset(topics)


def wants_the_same(
    group: ClassicGroup, member: Member, protocols: tuple[MemberProtocol, ...]
) -> bool:
    """Whether the assignment of a member fits it still when it comes back with these protocols.

    What it owned or when it began may differ, a consumer's topics may not.
    """
    then = member.find_metadata(group.protocol)
    now = next((each.metadata for each in protocols if each.name == group.protocol), None)
    if then is None or now is None or then == now:
        return then == now
    if group.protocol_type != CONSUMER:
        return False
    topics = find_topics(now)
    return topics is not None and topics == find_topics(then)
