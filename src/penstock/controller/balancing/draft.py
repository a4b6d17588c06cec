"""A layout while it is planned: who has which replica, what that costs, and what may go where.

Owned by one run of the planner. Every change of a replica goes through `replace`, so that counts,
bytes and the index by broker agree with the replicas at any time.
"""

from collections import defaultdict

from penstock.controller.balancing.layout import (
    BalanceGoals,
    ClusterLayout,
    PlannedReassignment,
    rack_of,
)
from penstock.model.cluster import BrokerId


class LayoutDraft:
    """Partitions are their indexes in the layout, which are in the order of topic and number."""

    def __init__(self, layout: ClusterLayout, goals: BalanceGoals) -> None:
        self.goals = goals
        self.partitions = sorted(layout.partitions, key=lambda partition: partition.tp)
        self.sizes = [partition.size_bytes for partition in self.partitions]
        self.replicas = [list(partition.replicas) for partition in self.partitions]
        self.origins = [frozenset(partition.replicas) for partition in self.partitions]
        usable = layout.racks.keys() - goals.removed
        self.balanced = sorted(usable - goals.excluded)  # brokers that the plan evens out
        self.racks = {broker: rack_of(layout, broker) for broker in layout.racks}
        self._usable_racks = len({self.racks[broker] for broker in usable})
        self.on_broker: dict[BrokerId, set[int]] = defaultdict(set)
        self.bytes_on: dict[BrokerId, int] = defaultdict(int)
        self.of_topic: dict[tuple[BrokerId, str], int] = defaultdict(int)
        self._changes: dict[BrokerId, int] = defaultdict(int)  # of partitions that it has or had
        # By source and target: a partition that may go, or None, as of so many changes.
        self._candidates: dict[tuple[BrokerId, BrokerId], tuple[int, int | None]] = {}
        for index, replicas in enumerate(self.replicas):
            for broker in replicas:
                self._count(index, broker, 1)

    def _count(self, index: int, broker: BrokerId, by: int) -> None:
        (self.on_broker[broker].add if by > 0 else self.on_broker[broker].remove)(index)
        self.bytes_on[broker] += by * self.sizes[index]
        self.of_topic[broker, self.partitions[index].tp.topic] += by

    # What a change would be.

    def is_fixed(self, index: int) -> bool:
        return self.partitions[index].is_fixed

    def count_on(self, broker: BrokerId) -> int:
        return len(self.on_broker[broker])

    def may_replace(self, index: int, source: BrokerId, target: BrokerId) -> bool:
        """Whether the replica may go from one broker to the other: the target gets replicas and has
        none of this partition, and the partition covers as many racks as before."""
        return (
            not self.is_fixed(index)
            and target not in self.replicas[index]
            and self.may_receive(index, source, target)
            and self.rack_change(index, source, target) >= 0
        )

    def may_receive(self, index: int, source: BrokerId, target: BrokerId) -> bool:
        """With `added`, other brokers get only what they had, or a removed broker's replicas."""
        if target in self.origins[index] or not self.goals.added or target in self.goals.added:
            return True
        return bool(self.origins[index] & self.goals.removed) and source not in self.origins[index]

    def find_candidate(self, source: BrokerId, target: BrokerId) -> int | None:
        """Some partition of which a replica may go there. Most searches end at what an earlier one
        found."""
        changes, candidate = self._candidates.get((source, target), (-1, None))
        if changes == self._changes[source]:
            return candidate
        if candidate is None or not self._may_still_go(candidate, source, target):
            on_broker = self.on_broker[source]
            candidate = next(
                (index for index in on_broker if self.may_replace(index, source, target)), None
            )
        self._candidates[source, target] = (self._changes[source], candidate)
        return candidate

    def _may_still_go(self, index: int, source: BrokerId, target: BrokerId) -> bool:
        return index in self.on_broker[source] and self.may_replace(index, source, target)

    def rack_change(self, index: int, source: BrokerId, target: BrokerId) -> int:
        """How many more racks the partition would cover."""
        racks = self.racks  # of live brokers: where the others are, nobody knows
        if racks.get(source) == racks[target]:
            return 0
        others = {
            racks[broker] for broker in self.replicas[index] if broker != source and broker in racks
        }
        is_covered = source not in racks or racks[source] in others
        return (racks[target] not in others) - (not is_covered)

    def lacks_racks(self, index: int) -> bool:
        replicas = self.replicas[index]
        live = [broker for broker in replicas if broker in self.racks]
        covered = len({self.racks[broker] for broker in live})
        return covered < min(len(live), self._usable_racks)

    def cost(self, index: int, source: BrokerId, target: BrokerId) -> int:
        """More bytes to copy: nothing for a replica that the plan has to copy anyway, less than
        nothing for one that goes back."""
        origin = self.origins[index]
        return self.sizes[index] * ((target not in origin) - (source not in origin))

    # Changes.

    def replace(self, index: int, source: BrokerId, target: BrokerId) -> None:
        replicas = self.replicas[index]
        assert target not in replicas, (self.partitions[index], source, target)
        for broker in (*replicas, target):
            self._changes[broker] += 1
        replicas[replicas.index(source)] = target
        self._count(index, source, -1)
        self._count(index, target, 1)

    def lead(self, index: int, broker: BrokerId) -> None:
        """Make it the preferred leader."""
        replicas = self.replicas[index]
        replicas.remove(broker)
        replicas.insert(0, broker)

    def reassignments(self) -> list[PlannedReassignment]:
        return [
            PlannedReassignment(
                partition.tp, partition.replicas, tuple(replicas), partition.size_bytes
            )
            for partition, replicas in zip(self.partitions, self.replicas, strict=True)
            if tuple(replicas) != partition.replicas
        ]
