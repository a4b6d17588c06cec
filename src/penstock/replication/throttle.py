"""Throttled replication: which replicas are throttled, and how many bytes may be copied of them.

Pure but for `ReplicationThrottle`, which keeps a budget. An answer's size is known only when it is
there: what is spent ahead is paid back by waiting. Invariant: over any time, no more is copied than
the rate times it, a second's worth and one answer.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

EVERY_REPLICA = "*"
BURST_MS = 1000
NEVER_MS = 2**62


class ReplicaSet(NamedTuple):
    """Replicas of one topic, as its settings name them."""

    is_every: bool
    members: frozenset[tuple[int, int]]  # partition, broker

    def has(self, partition: int, broker: int) -> bool:
        return self.is_every or (partition, broker) in self.members


NO_REPLICAS = ReplicaSet(False, frozenset())


def parse_replicas(texts: Iterable[str]) -> ReplicaSet:
    """Of partition:broker, or * alone; the settings have checked that."""
    named = tuple(texts)
    if named == (EVERY_REPLICA,):
        return ReplicaSet(True, frozenset())
    pairs = (each.split(":") for each in named)
    return ReplicaSet(False, frozenset((int(number), int(broker)) for number, broker in pairs))


class Budget(NamedTuple):
    left_bytes: float  # below zero: spent ahead
    at_ms: int


FULL = Budget(math.inf, 0)  # as much as the rate allows


def budget_at(budget: Budget, *, rate: int, now_ms: int) -> Budget:
    """It grows with time, and no further than to what a burst may take."""
    grown = budget.left_bytes + rate * (now_ms - budget.at_ms) / 1000
    return Budget(min(grown, rate * BURST_MS / 1000), now_ms)


def after_spending(budget: Budget, size_bytes: int) -> Budget:
    return Budget(budget.left_bytes - size_bytes, budget.at_ms)


def ready_at_ms(budget: Budget, *, rate: int) -> int:
    """When something may be spent again."""
    if budget.left_bytes > 0:
        return budget.at_ms
    if rate <= 0:
        return NEVER_MS
    return budget.at_ms + math.floor(-budget.left_bytes * 1000 / rate) + 1


class ReplicationThrottle:
    """Of all throttled replicas of a broker, in one direction. Owned by the event loop."""

    def __init__(self, rate: Callable[[], int], now_ms: Callable[[], int]) -> None:
        self._rate = rate  # bytes a second, as of now
        self._now_ms = now_ms
        self._budget = FULL

    @property
    def is_spent(self) -> bool:
        return self.ready_at_ms > self._now_ms()

    @property
    def ready_at_ms(self) -> int:
        return ready_at_ms(self._grown(), rate=self._rate())

    def spend(self, size_bytes: int) -> None:
        self._budget = after_spending(self._grown(), size_bytes)

    def _grown(self) -> Budget:
        self._budget = budget_at(self._budget, rate=self._rate(), now_ms=self._now_ms())
        return self._budget
