"""The `uniform` assignor: as even as subscriptions allow, with as few moves as evenness allows.

With equal subscriptions, members differ by at most one partition. With different ones, no single
move from one member to another makes it more even.
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
    ordered = sorted(subscribers, key=lambda subscriber: subscriber.member)
    retained = _retain(ordered, counts)
    if len({subscriber.topics for subscriber in ordered}) <= 1:
        return _assign_homogeneous(ordered, retained, counts)
    return Balance(ordered, retained, counts).assigned()


def _retain(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> dict[str, Partitions]:
    """The partitions that members may keep: existing ones of topics they still subscribe to."""
    taken: dict[TopicId, set[int]] = {}
    retained: dict[str, Partitions] = {}
    for subscriber in subscribers:
        kept: dict[TopicId, frozenset[int]] = {}
        for topic in subscriber.topics & subscriber.current.keys():
            used = taken.setdefault(topic, set())
            partitions = subscriber.current[topic]
            own = frozenset(number for number in partitions if number < counts[topic]) - used
            if own:
                kept[topic] = own
                used |= own
        retained[subscriber.member] = kept
    return retained


def _assign_homogeneous(
    subscribers: Sequence[Subscriber], retained: dict[str, Partitions], counts: PartitionCounts
) -> Assigned:
    """All members subscribe to the same topics: each gets a quota, the most loaded the larger
    ones."""
    if not subscribers:
        return {}
    topics = subscribers[0].topics
    share, extra = divmod(sum(counts[topic] for topic in topics), len(subscribers))
    by_load = sorted(retained, key=lambda member: -count(retained[member]))
    quotas = {member: share + (1 if index < extra else 0) for index, member in enumerate(by_load)}
    kept = {member: _first(own, quotas[member]) for member, own in retained.items()}
    free = _unassigned(topics, kept, counts)
    return {member: _filled(own, quotas[member], free) for member, own in kept.items()}


def _first(partitions: Partitions, quota: int) -> Partitions:
    """The first partitions up to the quota; whole topics where possible."""
    kept: dict[TopicId, frozenset[int]] = {}
    for topic in sorted(partitions, key=lambda topic_id: topic_id.int):
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
    """The partitions in reverse order, because they are taken from the end."""
    free: list[_Slot] = []
    for topic in sorted(topics, key=lambda topic_id: -topic_id.int):
        taken = frozenset[int]().union(*(own.get(topic, ()) for own in kept.values()))
        missing = frozenset(range(counts[topic])) - taken
        free.extend((topic, partition) for partition in sorted(missing, reverse=True))
    return free


def _filled(partitions: Partitions, quota: int, free: list[_Slot]) -> Partitions:
    missing = quota - count(partitions)
    if not missing:
        return partitions
    gained: dict[TopicId, list[int]] = {}
    for _ in range(missing):
        topic, partition = free.pop()
        gained.setdefault(topic, []).append(partition)
    return together(partitions, {topic: frozenset(numbers) for topic, numbers in gained.items()})
