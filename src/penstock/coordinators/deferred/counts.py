"""What the coordinator of deferred messages counts for metrics. No behaviour."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.coordinators.runtime.load_times import LoadStatistics


@dataclass(slots=True)
class DeferredCounts:
    """Of all shards, since the start. Owned by the coordinator."""

    delivered: int = 0
    cancelled: int = 0

    def add_delivered(self, count: int) -> None:
        self.delivered += count


class DeferredCoordinatorStatistics(NamedTuple):
    shards: int
    loading: int
    pending: int  # messages that wait, or are not confirmed by their target
    due_lag_ms: int  # how long the one that waits for its target longest has been due
    unconfirmed: int  # targets with a delivery under way
    delivered: int
    cancelled: int
    unexpected_errors: int
    loads: LoadStatistics
