"""Which topics have halves, for which groups, and where their parts are; from the metadata. Pure.

A topic T has halves if its topic T.half has penstock.half.groups. Invariants: a group is bound by
that setting alone, never by what a record says; an internal topic has none, because what clients
send as a half is appended to T in a broker's name.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.coordinators.deferred.values import Target
from penstock.coordinators.runtime.key_hash import partition_for
from penstock.model.cluster import INTERNAL_TOPICS, BrokerId, TopicState
from penstock.model.ids import TopicPartition
from penstock.protocol.half_headers import (
    DECISIONS_SUFFIX,
    EXPIRED_SUFFIX,
    HALF_SUFFIX,
)
from penstock.replication.metadata_cache import MetadataCache

HALF_GROUPS = "penstock.half.groups"


class HalfSource(NamedTuple):
    """A partition of halves or decisions, that a group's shard has to read."""

    group: str
    topic: str  # T
    tp: TopicPartition
    target: Target  # the same, by its id
    is_decisions: bool
    leader: BrokerId


class HalfTopics:
    """Computed when the metadata has changed."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._version = -1
        self._sources: list[HalfSource] = []
        self._groups: dict[str, tuple[str, ...]] = {}

    def sources(self) -> list[HalfSource]:
        if self._version != self._metadata.version:
            self._version = self._metadata.version
            self._groups = dict(self._find_groups())
            self._sources = [
                source
                for topic, groups in self._groups.items()
                for source in self._of(topic, groups)
            ]
        return self._sources

    def sources_of(self, group: str, *, decisions: bool) -> list[HalfSource]:
        return [
            source
            for source in self.sources()
            if source.group == group and source.is_decisions is decisions
        ]

    def groups_of(self, topic: str) -> tuple[str, ...]:
        self.sources()
        return self._groups.get(topic, ())

    def find_partition(self, topic: str, key: str) -> Target | None:
        state = self._metadata.find_topic(topic)
        if state is None:
            return None
        return Target(state.topic_id, partition_for(key, len(state.partitions)))

    def find_same_partition(self, topic: str, partition: int) -> Target | None:
        """As many partitions are usual, so that a client's choice is kept."""
        state = self._metadata.find_topic(topic)
        if state is None:
            return None
        return Target(state.topic_id, partition % len(state.partitions))

    def _find_groups(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        for name, state in self._metadata.topics.items():
            groups = state.configs.get(HALF_GROUPS) if name.endswith(HALF_SUFFIX) else None
            topic = name.removesuffix(HALF_SUFFIX)
            if groups and topic not in INTERNAL_TOPICS:
                parts = (part.strip() for part in groups.split(","))
                yield topic, tuple(part for part in parts if part)

    def _of(self, topic: str, groups: tuple[str, ...]) -> Iterator[HalfSource]:
        """None of a topic that is not whole."""
        halves = self._metadata.find_topic(topic + HALF_SUFFIX)
        decisions = self._metadata.find_topic(topic + DECISIONS_SUFFIX)
        is_whole = all(
            self._metadata.find_topic(name) is not None for name in (topic, topic + EXPIRED_SUFFIX)
        )
        if halves is None or decisions is None or not is_whole:
            return
        for group in groups:
            yield from _partitions(group, topic, halves, is_decisions=False)
            yield from _partitions(group, topic, decisions, is_decisions=True)


def _partitions(
    group: str, topic: str, state: TopicState, *, is_decisions: bool
) -> Iterator[HalfSource]:
    for number, partition in enumerate(state.partitions):
        yield HalfSource(
            group,
            topic,
            TopicPartition(state.name, number),
            Target(state.topic_id, number),
            is_decisions,
            partition.leader,
        )
