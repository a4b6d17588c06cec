"""Requests to the transaction coordinator and its replies, as plain values."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition

NO_EPOCH = -1
NO_TIME = -1


class ProducerIdAndEpoch(NamedTuple):
    """One incarnation of a producer; a later epoch of the same id fences it."""

    id: int
    epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """Id and epoch are those that the producer had before (KIP-360): both or neither."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    two_phase: bool = False  # its transactions never time out (KIP-939)
    keep_prepared: bool = False  # an open transaction stays open, for the new epoch to end


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdReply:
    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    ongoing_producer_id: int = NO_PRODUCER_ID  # of the kept transaction
    ongoing_producer_epoch: int = NO_EPOCH


class EndTxnReply(NamedTuple):
    """The producer of the next transaction: since KIP-890 with a new epoch, or a new id."""

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction:
    transactional_id: str
    code: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    started_ms: int = NO_TIME
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    partitions: tuple[TopicPartition, ...] = ()  # in order
    is_two_phase: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """An empty filter matches everything."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    min_duration_ms: int = -1  # below 0: any


class TransactionSummary(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class ListedTransactions(NamedTuple):
    code: ErrorCode
    unknown_states: tuple[str, ...] = ()  # of the requested ones
    transactions: tuple[TransactionSummary, ...] = ()
