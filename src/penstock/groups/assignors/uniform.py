"""The assignor `uniform`: as even as subscriptions allow, and as few moves as evenness allows.

Members that subscribe to the same topics differ by at most one partition. Where subscriptions
differ, no single move from one member to another makes it more even.
"""

from collections.abc import Sequence

from penstock.groups.assignors.balance import Balance
from penstock.groups.assignors.problem import Assigned, PartitionCounts, Subscriber
from penstock.groups.consumer_partitions import Partitions, count
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
            own = subscriber.had[topic].intersection(range(counts[topic])) - used
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
    topics = sorted(subscribers[0].topics, key=lambda topic: topic.int)
    share, extra = divmod(sum(counts[topic] for topic in topics), len(subscribers))
    by_load = sorted((each.member for each in subscribers), key=lambda each: -count(retained[each]))
    quotas = {member: share + (1 if place < extra else 0) for place, member in enumerate(by_load)}
    kept = {member: _first(retained[member], quotas[member]) for member in retained}
    free = _unassigned(topics, kept, counts)
    assigned: Assigned = {}
    for member, slots in kept.items():
        while len(slots) < quotas[member]:
            slots.append(free.pop())
        assigned[member] = _by_topic(slots)
    assert not free, f"quotas {quotas} leave {len(free)} partitions to nobody"
    return assigned


def _first(partitions: Partitions, quota: int) -> list[_Slot]:
    ordered = sorted(partitions.items(), key=lambda item: item[0].int)
    return [(topic, each) for topic, own in ordered for each in sorted(own)][:quota]


def _unassigned(
    topics: Sequence[TopicId], kept: dict[str, list[_Slot]], counts: PartitionCounts
) -> list[_Slot]:
    """The last comes first."""
    taken = {slot for slots in kept.values() for slot in slots}
    everything = [(topic, each) for topic in topics for each in range(counts[topic])]
    return [slot for slot in reversed(everything) if slot not in taken]


def _by_topic(slots: Sequence[_Slot]) -> Partitions:
    gathered: dict[TopicId, set[int]] = {}
    for topic, partition in slots:
        gathered.setdefault(topic, set()).add(partition)
    return {topic: frozenset(each) for topic, each in gathered.items()}
