"""What the coordinator of deferred messages counts for metrics. No behaviour."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.coordinators.deferred.half_values import IntakeReply
from penstock.coordinators.runtime.load_times import LoadStatistics


@dataclass(slots=True)
class DeferredCounts:
    """Of all shards, since the start. Owned by the coordinator."""

    delivered: int = 0
    cancelled: int = 0
    committed: int = 0  # half ids, as are the others
    rolled_back: int = 0
    expired: int = 0
    ignored: int = 0  # decisions

    def add_decided(self, reply: IntakeReply) -> None:
        self.committed += reply.committed
        self.rolled_back += reply.rolled_back
        self.ignored += reply.ignored

    def add_delivered(self, count: int) -> None:
        self.delivered += count


class HalfStatistics(NamedTuple):
    """Half ids."""

    pending: int
    oldest_ms: int  # how long the one that waits longest has waited
    committed: int
    rolled_back: int
    expired: int
    ignored: int  # decisions that came too late, or for unknown ids


class DeferredCoordinatorStatistics(NamedTuple):
    shards: int
    loading: int
    pending: int  # messages that wait, or are not confirmed by their target
    due_lag_ms: int  # how long the one that waits for its target longest has been due
    unconfirmed: int  # targets with a delivery under way
    delivered: int
    cancelled: int
    halves: HalfStatistics
    unexpected_errors: int
    loads: LoadStatistics
