"""What the group coordinator needs of the rooms beside it; the broker joins them. No behaviour.

Its log is a `state_topics.StateLog` of the topic `__consumer_offsets`.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from penstock.model.ids import TopicId, TopicPartition


class TopicView(NamedTuple):
    topic_id: TopicId
    partitions: int


class Topics(Protocol):
    """What this broker knows of the cluster's topics."""

    def find(self, name: str) -> TopicView | None: ...

    def all(self) -> Mapping[str, TopicView]: ...

    def find_name(self, topic_id: TopicId) -> str | None: ...


def has_partition(topics: Topics, partition: TopicPartition) -> bool:
    found = topics.find(partition.topic)
    return found is not None and 0 <= partition.partition < found.partitions
