"""Throttled replication: which replicas are throttled, and how many bytes they may copy.

Pure except for `ReplicationThrottle`, which keeps a budget. A response's size is known only when it
is built, so overdraft is paid back by waiting. Invariant: over any period, no more is copied than
the rate allows, plus one second's worth and one response.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

EVERY_REPLICA = "*"
BURST_MS = 1000
NEVER_MS = 2**62


class ReplicaSet(NamedTuple):
    """Replicas of one topic, as its config names them."""

    is_every: bool
    members: frozenset[tuple[int, int]]  # partition, broker

    def has(self, partition: int, broker: int) -> bool:
        return self.is_every or (partition, broker) in self.members


NO_REPLICAS = ReplicaSet(False, frozenset())


def parse_replicas(texts: Iterable[str]) -> ReplicaSet:
    """Parse partition:broker pairs, or * alone; the config has been validated."""
    named = tuple(texts)
    if named == (EVERY_REPLICA,):
        return ReplicaSet(True, frozenset())
    pairs = (pair.split(":") for pair in named)
    members = frozenset((int(partition), int(broker)) for partition, broker in pairs)
    return ReplicaSet(False, members)


class Budget(NamedTuple):
    left_bytes: float  # below zero: overdrawn
    at_ms: int


FULL = Budget(math.inf, 0)  # as much as the rate allows


def budget_at(budget: Budget, *, rate: int, now_ms: int) -> Budget:
    """It grows with time, up to one burst."""
    grown = budget.left_bytes + rate * (now_ms - budget.at_ms) / 1000
    return Budget(min(grown, rate * BURST_MS / 1000), now_ms)


def after_spending(budget: Budget, size_bytes: int) -> Budget:
    return Budget(budget.left_bytes - size_bytes, budget.at_ms)


def ready_at_ms(budget: Budget, *, rate: int) -> int:
    """When bytes may be spent again."""
    if budget.left_bytes > 0:
        return budget.at_ms
    if rate <= 0:
        return NEVER_MS
    return budget.at_ms + math.floor(-budget.left_bytes * 1000 / rate) + 1


class ReplicationThrottle:
    """The budget of all throttled replicas of a broker in one direction. Owned by the event
    loop."""

    def __init__(self, rate: Callable[[], int], now_ms: Callable[[], int]) -> None:
        self._rate = rate  # bytes per second, as of now
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
