"""Balances members with different subscriptions. Owned by one assignment.

Starts with what members keep, assigns free partitions to the least loaded member, then moves
partitions from the most to the least loaded while that makes the loads more even.
"""

import heapq
from collections.abc import Mapping, Sequence

from penstock.coordinators.group.consumer.assignors.problem import (
    Assigned,
    PartitionCounts,
    Subscriber,
)
from penstock.coordinators.group.consumer.partitions import Partitions, count
from penstock.model.ids import TopicId

MAX_SWEEPS = (
    64  # every sweep makes it more even; few are needed unless subscriptions form long chains
)


class Balance:
    def __init__(
        self,
        subscribers: Sequence[Subscriber],
        retained: Mapping[str, Partitions],
        counts: PartitionCounts,
    ) -> None:
        self._counts = counts
        self._subscribers: dict[TopicId, list[str]] = {}
        for subscriber in subscribers:
            for topic in subscriber.topics:
                self._subscribers.setdefault(topic, []).append(subscriber.member)
        self._loads = {member: count(own) for member, own in retained.items()}
        self._own: dict[TopicId, dict[str, set[int]]] = {
            topic: {member: set(retained[member].get(topic, ())) for member in members}
            for topic, members in self._subscribers.items()
        }
        # The hardest topics first: many partitions for few members.
        self._topics = sorted(
            self._subscribers,
            key=lambda topic: (-counts[topic] / len(self._subscribers[topic]), topic.int),
        )

    def assigned(self) -> Assigned:
        for topic in self._topics:
            self._assign_free(topic)
        for _ in range(MAX_SWEEPS):
            moved = [self._even_out(topic) for topic in self._topics]
            if not any(moved):
                break
        return {member: self._owned_by(member) for member in self._loads}

    def _assign_free(self, topic: TopicId) -> None:
        own = self._own[topic]
        taken = set().union(*own.values())
        least_loaded = _LeastLoaded(self._subscribers[topic], self._loads)
        for partition in range(self._counts[topic]):
            if partition not in taken:
                own[least_loaded.take()].add(partition)

    def _even_out(self, topic: TopicId) -> bool:
        """Whether any partition moved."""
        own = self._own[topic]
        has_moved = False
        while True:
            owners = [member for member, partitions in own.items() if partitions]
            most = max(owners, key=self._load_order, default=None)
            least = min(own, key=self._load_order)
            if most is None or self._loads[most] - self._loads[least] < 2:
                return has_moved
            self._move(topic, most, least)
            has_moved = True

    def _load_order(self, member: str) -> tuple[int, str]:
        return self._loads[member], member

    def _move(self, topic: TopicId, source: str, target: str) -> None:
        partition = max(self._own[topic][source])
        self._own[topic][source].remove(partition)
        self._own[topic][target].add(partition)
        self._loads[source] -= 1
        self._loads[target] += 1

    def _owned_by(self, member: str) -> Partitions:
        return {
            topic: frozenset(own[member]) for topic, own in self._own.items() if own.get(member)
        }


class _LeastLoaded:
    """A heap of members by load."""

    def __init__(self, members: Sequence[str], loads: dict[str, int]) -> None:
        self._heap = [(loads[member], member) for member in members]
        heapq.heapify(self._heap)
        self._loads = loads

    def take(self) -> str:
        """The least loaded member, whose load grows by one."""
        load, member = self._heap[0]
        heapq.heapreplace(self._heap, (load + 1, member))
        self._loads[member] = load + 1
        return member
