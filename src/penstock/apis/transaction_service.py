"""What handlers ask about transactions: of the coordinator on this broker, or of the one that a
transaction has, wherever it is.

Every call answers a client's fault with a code; none raises for it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:  # a start does without that room
    from penstock.coordinators.transaction.requests import (
        DescribedTransaction,
        EndTxnReply,
        InitProducerId,
        InitProducerIdReply,
        ListedTransactions,
        ListTransactions,
    )

Verified = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class TransactionService(Protocol):
    """`transactions.TransactionCoordinator`, or a twin. Every call checks the transactional id,
    whether this broker coordinates it and whether it is loaded."""

    async def ensure_topic(self) -> ErrorCode:
        """Create the topic of transactions unless it is there; NONE when this broker knows it."""

    def partition_of(self, transactional_id: str, /) -> int:
        """The partition of that topic whose leader coordinates the transactional id."""

    async def init_producer_id(self, request: "InitProducerId") -> "InitProducerIdReply": ...

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        version: int,
        connection: int | None = None,
    ) -> ErrorCode:
        """`version` of AddPartitionsToTxn; `connection` of the producer, where it asks itself."""

    async def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        version: int,
        connection: int | None = None,
    ) -> "EndTxnReply":
        """`version` of EndTxn; `connection` of the producer."""

    def describe(self, transactional_id: str) -> "DescribedTransaction": ...

    def list(self, request: "ListTransactions", /) -> "ListedTransactions": ...


class VerifiesTransactions(Protocol):
    """Asks a transaction's coordinator whether partitions belong to it (KIP-890)."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Verified,
    ) -> None:
        """`done` once, now or later, with a code for each of the partitions.

        `adds`: those that do not belong to it are added (transactions v2), and while the one before
        is still being ended, that is tried again for a short while. The codes are the
        coordinator's, but that a newer producer's is INVALID_PRODUCER_EPOCH, which clients expect
        of a partition. Where the coordinator is not known or not reached: COORDINATOR_NOT_AVAILABLE
        or NETWORK_EXCEPTION; the caller tells its client something that is tried again.
        """


class NobodyVerifies:
    """Of a broker without a coordinator to ask: nothing can be written in a transaction."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Verified,
    ) -> None:
        done(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
