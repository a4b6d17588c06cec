"""Sets of partitions by topic id, as members of a consumer group own them. Values only.

Invariant: no topic has an empty set, so that equal sets compare equal.
"""

from collections.abc import Iterable, Mapping

from penstock.coordinators.group.records import TopicPartitions
from penstock.model.ids import TopicId

Partitions = Mapping[TopicId, frozenset[int]]

NOTHING: Partitions = {}


def from_topics(topics: Iterable[TopicPartitions]) -> Partitions:
    merged: dict[TopicId, frozenset[int]] = {}
    for topic_id, partitions in topics:
        if partitions:
            merged[topic_id] = merged.get(topic_id, frozenset()) | frozenset(partitions)
    return merged


def to_topics(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """The partitions by topic, in a fixed order."""
    ordered = sorted(partitions.items(), key=lambda item: item[0].int)
    return tuple(TopicPartitions(topic_id, tuple(sorted(numbers))) for topic_id, numbers in ordered)


def common(one: Partitions, other: Partitions) -> Partitions:
    return _non_empty({topic: one[topic] & other[topic] for topic in one.keys() & other.keys()})


def without(partitions: Partitions, taken: Partitions) -> Partitions:
    return _non_empty(
        {topic: own - taken.get(topic, frozenset()) for topic, own in partitions.items()}
    )


def together(one: Partitions, other: Partitions) -> Partitions:
    empty: frozenset[int] = frozenset()
    topics = one.keys() | other.keys()
    return {topic: one.get(topic, empty) | other.get(topic, empty) for topic in topics}


def is_within(partitions: Partitions, outer: Partitions) -> bool:
    return all(own <= outer.get(topic, frozenset()) for topic, own in partitions.items())


def overlap(one: Partitions, other: Partitions) -> bool:
    return any(not own.isdisjoint(other.get(topic, ())) for topic, own in one.items())


def count(partitions: Partitions) -> int:
    return sum(len(numbers) for numbers in partitions.values())


def _non_empty(partitions: Partitions) -> Partitions:
    return {topic: numbers for topic, numbers in partitions.items() if numbers}
