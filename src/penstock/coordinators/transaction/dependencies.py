"""What the transaction coordinator needs of the rooms beside it; the broker joins them.

No behaviour. Its log is a `state_topics.StateLog` of the topic `__transaction_state`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition


class TxnMarkerEntry(NamedTuple):
    """To be written to each of the partitions: how this producer's transaction has ended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


# Some of a marker's partitions, each with what became of it: all in one call or in several.
MarkerCallback = Callable[[TxnMarkerEntry, Mapping[TopicPartition, ErrorCode]], None]


class MarkerChannel(Protocol):
    """To the leaders of partitions, wherever they are."""

    def send(self, markers: Sequence[TxnMarkerEntry], done: MarkerCallback) -> None:
        """`done`, now or later, exactly once for each partition of each marker. A partition
        without a leader or of a topic that is not known is answered too: what is sent again, and
        when, is the coordinator's to say."""


class KnownPartitions(Protocol):
    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether it is there, as far as this broker knows: the topic may have been deleted."""
