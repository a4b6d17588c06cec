"""What an assignor is asked and what it answers. Values only."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.coordinators.group.consumer.partitions import Partitions
from penstock.model.ids import TopicId

PartitionCounts = Mapping[TopicId, int]


class Subscriber(NamedTuple):
    member: str
    instance: str | None
    topics: frozenset[TopicId]  # that exist: each has a count
    had: Partitions  # its target until now


Assigned = dict[str, Partitions]
Assignor = Callable[[Sequence[Subscriber], PartitionCounts], Assigned]
