"""What the balance planner reads and returns: brokers, partitions with their bytes, reassignments.

Values only; no plan is made here. A partition's `size_bytes` is the size of one replica of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition

DISK_TOLERANCE_PERCENT = 10
DISK_SLACK_BYTES = 1 << 20  # differences below this are never worth copying


class LayoutPartition(NamedTuple):
    tp: TopicPartition
    replicas: tuple[BrokerId, ...]  # the first is the preferred leader
    size_bytes: int
    is_fixed: bool = False  # counted, and left as it is: it has no leader, or is being reassigned


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    racks: Mapping[BrokerId, str | None]  # of the live brokers
    partitions: tuple[LayoutPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceGoals:
    """`removed` brokers, live or not, end without replicas. Other brokers that are not live, and
    `excluded` ones, keep theirs and get none. If `added` is not empty, only these get replicas,
    apart from those of removed brokers. With `only_removed`, nothing else is reassigned."""

    removed: frozenset[BrokerId] = frozenset()
    excluded: frozenset[BrokerId] = frozenset()
    added: frozenset[BrokerId] = frozenset()
    only_removed: bool = False
    disk_tolerance_percent: int = DISK_TOLERANCE_PERCENT  # of the mean of all brokers
    disk_slack_bytes: int = DISK_SLACK_BYTES


class PlannedReassignment(NamedTuple):
    tp: TopicPartition
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    size_bytes: int  # of one replica

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def copied_bytes(self) -> int:
        return self.size_bytes * len(self.adding)


class BrokerShare(NamedTuple):
    replicas: int
    leaders: int  # partitions whose preferred leader it is
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancePlan:
    reassignments: tuple[PlannedReassignment, ...]  # in the order in which to begin them
    before: Mapping[BrokerId, BrokerShare]
    after: Mapping[BrokerId, BrokerShare]
    stays: tuple[str, ...] = field(default=())  # what the plan cannot do, and why

    @property
    def copied_bytes(self) -> int:
        return sum(reassignment.copied_bytes for reassignment in self.reassignments)

    @property
    def copied_replicas(self) -> int:
        return sum(len(reassignment.adding) for reassignment in self.reassignments)


class CannotBalance(ValueError):
    """The goals contradict the cluster; the message says which partition or broker, and why."""


def rack_of(layout: ClusterLayout, broker: BrokerId) -> str:
    """Brokers without a rack share one."""
    return layout.racks.get(broker) or ""


def shares(
    brokers: Iterable[BrokerId], partitions: Iterable[tuple[tuple[BrokerId, ...], int]]
) -> dict[BrokerId, BrokerShare]:
    """By broker, also for brokers that are not named but have replicas."""
    totals: dict[BrokerId, list[int]] = {broker: [0, 0, 0] for broker in brokers}
    for replicas, size_bytes in partitions:
        for position, broker in enumerate(replicas):
            total = totals.setdefault(broker, [0, 0, 0])
            total[0] += 1
            total[1] += position == 0
            total[2] += size_bytes
    return {broker: BrokerShare(*totals[broker]) for broker in sorted(totals)}


def with_reassignments(
    layout: ClusterLayout, reassignments: Iterable[PlannedReassignment]
) -> ClusterLayout:
    """The layout once these are finished."""
    after = {reassigned.tp: reassigned.after for reassigned in reassignments}
    return ClusterLayout(racks=layout.racks, partitions=tuple(_replaced(layout, after)))


def _replaced(
    layout: ClusterLayout, after: Mapping[TopicPartition, tuple[BrokerId, ...]]
) -> Iterator[LayoutPartition]:
    for partition in layout.partitions:
        yield partition._replace(replicas=after.get(partition.tp, partition.replicas))
