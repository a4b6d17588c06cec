"""The `range` assignor: splits each topic into contiguous ranges, one per subscriber in order.

Topics with the same number of partitions and the same subscribers are split alike, so that records
with one key meet in one member. Previous assignments do not matter.
"""

from collections.abc import Iterator, Sequence

from penstock.coordinators.group.consumer.assignors.problem import (
    Assigned,
    PartitionCounts,
    Subscriber,
)
from penstock.model.ids import TopicId


def assign_ranges(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigned:
    by_topic: dict[TopicId, list[str]] = {}
    for subscriber in sorted(subscribers, key=_order):
        for topic in subscriber.topics:
            by_topic.setdefault(topic, []).append(subscriber.member)
    assigned: dict[str, dict[TopicId, frozenset[int]]] = {
        subscriber.member: {} for subscriber in subscribers
    }
    for topic, members in by_topic.items():
        for member, assigned_range in zip(
            members, ranges(counts[topic], len(members)), strict=True
        ):
            if assigned_range:
                assigned[member][topic] = frozenset(assigned_range)
    return dict(assigned)


def ranges(partitions: int, members: int) -> Iterator[range]:
    """Equal shares; the first `partitions % members` get one more."""
    share, extra = divmod(partitions, members)
    start = 0
    for index in range(members):
        end = start + share + (1 if index < extra else 0)
        yield range(start, end)
        start = end


def _order(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first: they return under another id, to the same position."""
    if subscriber.instance is not None:
        return (False, subscriber.instance)
    return (True, subscriber.member)
