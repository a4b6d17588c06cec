"""Sets of partitions by topic id, as members of a consumer group own them. Values only.

Invariant: no topic stands here with no partitions, so equal sets compare equal.
"""

from collections.abc import Iterable, Mapping

from penstock.coordinators.group.records import TopicPartitions
from penstock.model.ids import TopicId

Partitions = Mapping[TopicId, frozenset[int]]

NOTHING: Partitions = {}


def from_topics(topics: Iterable[TopicPartitions]) -> Partitions:
    gathered: dict[TopicId, frozenset[int]] = {}
    for topic_id, partitions in topics:
        if partitions:
            gathered[topic_id] = gathered.get(topic_id, frozenset()) | frozenset(partitions)
    return gathered


def to_topics(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """In one order, whatever way the set came about."""
    ordered = sorted(partitions.items(), key=lambda item: item[0].int)
    return tuple(TopicPartitions(topic_id, tuple(sorted(each))) for topic_id, each in ordered)


def common(one: Partitions, other: Partitions) -> Partitions:
    return _kept({topic: one[topic] & other[topic] for topic in one.keys() & other.keys()})


def without(partitions: Partitions, taken: Partitions) -> Partitions:
    return _kept({each: own - taken.get(each, frozenset()) for each, own in partitions.items()})


def together(one: Partitions, other: Partitions) -> Partitions:
    empty: frozenset[int] = frozenset()
    topics = one.keys() | other.keys()
    return {topic: one.get(topic, empty) | other.get(topic, empty) for topic in topics}


def is_within(partitions: Partitions, outer: Partitions) -> bool:
    return all(own <= outer.get(topic, frozenset()) for topic, own in partitions.items())


def overlap(one: Partitions, other: Partitions) -> bool:
    return any(not own.isdisjoint(other.get(topic, ())) for topic, own in one.items())


def count(partitions: Partitions) -> int:
    return sum(len(each) for each in partitions.values())


def _kept(partitions: Partitions) -> Partitions:
    return {topic: each for topic, each in partitions.items() if each}
