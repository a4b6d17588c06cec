"""Plain values that transaction requests take and return."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.metadata import BrokerMetadata
from penstock.model.ids import TopicPartition

ONGOING = "Ongoing"
OPEN_STATES = frozenset({ONGOING, "PrepareCommit", "PrepareAbort"})


class TransactionalProducerId(NamedTuple):
    """Who may write to and end a transaction: the last to be given an epoch, nobody before."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class PreparedState(TransactionalProducerId):
    """A transaction that is written and not decided. Whoever has this can decide it, from any
    process and as often as it takes: keep it where the decision is kept."""

    __slots__ = ()


class InitialisedProducer(NamedTuple):
    producer: TransactionalProducerId
    prepared: PreparedState | None = (
        None  # the prepared transaction of a previous incarnation, if kept
    )


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str  # as Kafka names them
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    transactional_id: str
    coordinator: BrokerMetadata
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int  # of two-phase commit: as large as it can be, and never up
    start_ms: int | None  # of the last one; None: there was none
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Not decided, or decided and not yet marked in every partition."""
        return self.state in OPEN_STATES

    @property
    def producer(self) -> TransactionalProducerId:
        return TransactionalProducerId(self.transactional_id, self.producer_id, self.producer_epoch)


class OpenTransaction(NamedTuple):
    """An open transaction as a partition's leader reports it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # of the last marker; -1: there was none
    start_offset: int  # the last stable offset stays at or before
    last_timestamp_ms: int  # of its last record
