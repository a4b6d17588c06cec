"""Interfaces that the transaction coordinator needs from other packages. No behaviour.

Its log is a `runtime.CoordinatorLog` of the topic `__transaction_state`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition


class TxnMarkerEntry(NamedTuple):
    """How a producer's transaction has ended, to be written to each of the partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


# The results for some of a marker's partitions: all in one call or in several.
MarkerCallback = Callable[[TxnMarkerEntry, Mapping[TopicPartition, ErrorCode]], None]


class MarkerChannel(Protocol):
    """Sends markers to the leaders of partitions, on any broker."""

    def send(self, markers: Sequence[TxnMarkerEntry], done: MarkerCallback) -> None:
        """Calls `done`, now or later, exactly once per partition of each marker, also if the
        partition has no leader or its topic is unknown. Retrying is the coordinator's decision."""


class PartitionLookup(Protocol):
    def has_partition(self, tp: TopicPartition, /) -> bool:
        """Whether this broker's metadata has it: its topic may have been deleted."""
