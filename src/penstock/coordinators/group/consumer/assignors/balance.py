"""Evens out the loads of members that subscribe to different topics. Owned by one assignment.

Begins with what members keep, gives what is free to the least loaded, then moves partitions from
the most to the least loaded while that makes a difference.
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

MAX_SWEEPS = 64  # each makes it more even; few are needed unless subscriptions form long chains


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
        # The hardest first: many partitions for few members.
        self._topics = sorted(
            self._subscribers,
            key=lambda each: (-counts[each] / len(self._subscribers[each]), each.int),
        )

    def assigned(self) -> Assigned:
        for topic in self._topics:
            self._give_free(topic)
        for _ in range(MAX_SWEEPS):
            moved = [self._even_out(topic) for topic in self._topics]
            if not any(moved):
                break
        return {member: self._owned_by(member) for member in self._loads}

    def _give_free(self, topic: TopicId) -> None:
        own = self._own[topic]
        taken = set().union(*own.values())
        ladder = _Ladder(self._subscribers[topic], self._loads)
        for partition in range(self._counts[topic]):
            if partition not in taken:
                own[ladder.raise_least()].add(partition)

    def _even_out(self, topic: TopicId) -> bool:
        """Whether anything moved."""
        own = self._own[topic]
        has_moved = False
        while True:
            donors = [member for member, partitions in own.items() if partitions]
            most = max(donors, key=lambda each: (self._loads[each], each), default=None)
            least = min(own, key=lambda each: (self._loads[each], each))
            if most is None or self._loads[most] - self._loads[least] < 2:
                return has_moved
            self._move(topic, most, least)
            has_moved = True

    def _move(self, topic: TopicId, giver: str, taker: str) -> None:
        partition = max(self._own[topic][giver])
        self._own[topic][giver].remove(partition)
        self._own[topic][taker].add(partition)
        self._loads[giver] -= 1
        self._loads[taker] += 1

    def _owned_by(self, member: str) -> Partitions:
        return {
            topic: frozenset(own[member]) for topic, own in self._own.items() if own.get(member)
        }


class _Ladder:
    """Members by load, least first; giving one more to the least keeps them so."""

    def __init__(self, members: Sequence[str], loads: dict[str, int]) -> None:
        self._heap = [(loads[each], each) for each in members]
        heapq.heapify(self._heap)
        self._loads = loads

    def raise_least(self) -> str:
        load, member = self._heap[0]
        heapq.heapreplace(self._heap, (load + 1, member))
        self._loads[member] = load + 1
        return member
