"""Plain values that transaction requests take and return."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.metadata import BrokerMetadata
from penstock.model.ids import TopicPartition

ONGOING = "Ongoing"
NEVER_MS = 2**31 - 1  # the timeout that is reported for two-phase commit
OPEN_STATES = frozenset({ONGOING, "PrepareCommit", "PrepareAbort"})


class TransactionalProducerId(NamedTuple):
    """The producer that may write to a transaction and end it: the newest epoch; older ones are
    fenced."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class PreparedState(TransactionalProducerId):
    """A prepared transaction, written but not decided. Any process that has this can decide it, and
    may retry: store it together with the decision."""

    __slots__ = ()


class InitialisedProducer(NamedTuple):
    producer: TransactionalProducerId
    prepared: PreparedState | None = (
        None  # the prepared transaction of a previous incarnation, if kept
    )


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str  # Kafka's names
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    transactional_id: str
    coordinator: BrokerMetadata
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int  # the maximum for two-phase commit, which never times out
    start_ms: int | None  # of the last transaction; None: there was none
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Undecided, or decided but not yet marked in every partition."""
        return self.state in OPEN_STATES

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NEVER_MS

    @property
    def producer(self) -> TransactionalProducerId:
        return TransactionalProducerId(self.transactional_id, self.producer_id, self.producer_epoch)


class OpenTransaction(NamedTuple):
    """An open transaction as a partition's leader reports it."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # of the last marker; -1: there was none
    start_offset: int  # upper bound of the last stable offset
    last_timestamp_ms: int  # of the producer's last record
