"""The assignor `range`: each topic cut into runs of partitions, one for each subscriber in order.

Members in the same order get the same run of every topic with as many partitions and the same
subscribers, so records with one key meet in one member. What members had before does not count.
"""

from collections.abc import Iterator, Sequence

from penstock.coordinators.group.consumer.assignors.problem import (
    Assigned,
    PartitionCounts,
    Subscriber,
)
from penstock.model.ids import TopicId


def assign_ranges(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigned:
    of_topic: dict[TopicId, list[str]] = {}
    for subscriber in sorted(subscribers, key=_place):
        for topic in subscriber.topics:
            of_topic.setdefault(topic, []).append(subscriber.member)
    assigned: dict[str, dict[TopicId, frozenset[int]]] = {each.member: {} for each in subscribers}
    for topic, members in of_topic.items():
        for member, run in zip(members, runs(counts[topic], len(members)), strict=True):
            if run:
                assigned[member][topic] = frozenset(run)
    return dict(assigned)


def runs(partitions: int, members: int) -> Iterator[range]:
    """An equal share each; the first `partitions % members` have one more."""
    share, extra = divmod(partitions, members)
    start = 0
    for place in range(members):
        end = start + share + (1 if place < extra else 0)
        yield range(start, end)
        start = end


def _place(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first: they come back under another id, and to the same place."""
    if subscriber.instance is not None:
        return (False, subscriber.instance)
    return (True, subscriber.member)
