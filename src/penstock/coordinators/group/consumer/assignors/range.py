"""The assignors `range` and `ceil-range`: contiguous ranges of each topic, one per subscriber.

Topics with the same number of partitions and the same subscribers are split alike, so that records
with one key meet in one member. Previous assignments do not matter.
"""

from collections.abc import Callable, Iterator, Sequence

from penstock.coordinators.group.consumer.assignors.problem import (
    Assigned,
    PartitionCounts,
    Subscriber,
)
from penstock.model.ids import TopicId

Split = Callable[[int, int], Iterator[range]]  # (partitions, members) -> a range for each member


def assign_ranges(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigned:
    """Kafka's rule: of 7 partitions, three members get 3, 2 and 2."""
    return _assign(subscribers, counts, ranges)


def assign_ceil_ranges(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigned:
    """Shares are rounded up: of 7 partitions, three members get 3, 3 and 1. The last members may
    get none."""
    return _assign(subscribers, counts, ceil_ranges)


def ranges(partitions: int, members: int) -> Iterator[range]:
    """Equal shares; the first `partitions % members` get one more."""
    share, extra = divmod(partitions, members)
    start = 0
    for index in range(members):
        end = start + share + (1 if index < extra else 0)
        yield range(start, end)
        start = end


def ceil_ranges(partitions: int, members: int) -> Iterator[range]:
    """Member i gets partitions i * share to (i + 1) * share - 1, as far as there are any."""
    share = -(-partitions // members)
    for index in range(members):
        yield range(min(index * share, partitions), min((index + 1) * share, partitions))


def _assign(subscribers: Sequence[Subscriber], counts: PartitionCounts, split: Split) -> Assigned:
    by_topic: dict[TopicId, list[str]] = {}
    for subscriber in sorted(subscribers, key=_order):
        for topic in subscriber.topics:
            by_topic.setdefault(topic, []).append(subscriber.member)
    assigned: dict[str, dict[TopicId, frozenset[int]]] = {
        subscriber.member: {} for subscriber in subscribers
    }
    for topic, members in by_topic.items():
        for member, assigned_range in zip(members, split(counts[topic], len(members)), strict=True):
            if assigned_range:
                assigned[member][topic] = frozenset(assigned_range)
    return dict(assigned)


def _order(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first: they return under another id, to the same position."""
    if subscriber.instance is not None:
        return (False, subscriber.instance)
    return (True, subscriber.member)
