"""The input and output of an assignor. Values only."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.coordinators.group.consumer.partitions import Partitions
from penstock.model.ids import TopicId

PartitionCounts = Mapping[TopicId, int]


class Subscriber(NamedTuple):
    member: str
    instance: str | None
    topics: frozenset[TopicId]  # existing ones, all with a partition count
    current: Partitions  # its target so far


Assigned = dict[str, Partitions]
Assignor = Callable[[Sequence[Subscriber], PartitionCounts], Assigned]
