"""The assignor `uniform`: as even as subscriptions allow, and as few moves as evenness allows.

Members that subscribe to the same topics differ by at most one partition. Where subscriptions
differ, no single move from one member to another makes it more even.
"""

from collections.abc import Iterable, Sequence

from penstock.coordinators.group.consumer.assignors.balance import Balance
from penstock.coordinators.group.consumer.assignors.problem import (
    Assigned,
    PartitionCounts,
    Subscriber,
)
from penstock.coordinators.group.consumer.partitions import Partitions, count, together
from penstock.model.ids import TopicId

_Slot = tuple[TopicId, int]


def assign_uniformly(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Assigned:
    ordered = sorted(subscribers, key=lambda each: each.member)
    retained = _retain(ordered, counts)
    if len({each.topics for each in ordered}) <= 1:
        return _assign_alike(ordered, retained, counts)
    return Balance(ordered, retained, counts).assigned()


def _retain(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> dict[str, Partitions]:
    """What members may keep: partitions that exist, of topics they still subscribe to."""
    taken: dict[TopicId, set[int]] = {}
    retained: dict[str, Partitions] = {}
    for subscriber in subscribers:
        kept: dict[TopicId, frozenset[int]] = {}
        for topic in subscriber.topics & subscriber.had.keys():
            used = taken.setdefault(topic, set())
            own = frozenset(each for each in subscriber.had[topic] if each < counts[topic]) - used
            if own:
                kept[topic] = own
                used |= own
        retained[subscriber.member] = kept
    return retained


def _assign_alike(
    subscribers: Sequence[Subscriber], retained: dict[str, Partitions], counts: PartitionCounts
) -> Assigned:
    """Everybody subscribes to the same topics: quotas, the larger ones to who has most already."""
    if not subscribers:
        return {}
    topics = subscribers[0].topics
    share, extra = divmod(sum(counts[topic] for topic in topics), len(subscribers))
    by_load = sorted(retained, key=lambda each: -count(retained[each]))
    quotas = {member: share + (1 if place < extra else 0) for place, member in enumerate(by_load)}
    kept = {member: _first(own, quotas[member]) for member, own in retained.items()}
    free = _unassigned(topics, kept, counts)
    return {member: _filled(own, quotas[member], free) for member, own in kept.items()}


def _first(partitions: Partitions, quota: int) -> Partitions:
    """As many as the quota allows; topics as a whole where it does."""
    kept: dict[TopicId, frozenset[int]] = {}
    for topic in sorted(partitions, key=lambda each: each.int):
        own = partitions[topic]
        if quota >= len(own):
            kept[topic] = own
        elif quota > 0:
            kept[topic] = frozenset(sorted(own)[:quota])
        quota -= len(own)
    return kept


def _unassigned(
    topics: Iterable[TopicId], kept: dict[str, Partitions], counts: PartitionCounts
) -> list[_Slot]:
    """The last comes first."""
    free: list[_Slot] = []
    for topic in sorted(topics, key=lambda each: -each.int):
        taken = frozenset[int]().union(*(own.get(topic, ()) for own in kept.values()))
        missing = frozenset(range(counts[topic])) - taken
        free.extend((topic, each) for each in sorted(missing, reverse=True))
    return free


def _filled(partitions: Partitions, quota: int, free: list[_Slot]) -> Partitions:
    missing = quota - count(partitions)
    if not missing:
        return partitions
    gained: dict[TopicId, list[int]] = {}
    for _ in range(missing):
        topic, partition = free.pop()
        gained.setdefault(topic, []).append(partition)
    return together(partitions, {topic: frozenset(each) for topic, each in gained.items()})
