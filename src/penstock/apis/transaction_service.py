"""The interfaces of the transaction coordinator and of the verifier to API handlers.

A client's fault is an error code, never an exception.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:  # start-up does not import that package
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
    """The coordinator on this broker. Every call checks the transactional id, whether this broker
    coordinates it and whether it is loaded."""

    async def ensure_topic(self) -> ErrorCode:
        """Creates the transaction topic if needed; NONE when this broker's metadata has it."""

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
        """`version` of AddPartitionsToTxn; `connection` of the producer, if it sent the request."""

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
        """Calls `done` once, now or later, with a code for each partition.

        `adds`: partitions that do not belong to the transaction are added (transactions v2); while
        the previous transaction is still ending, this is retried for a short time. The codes are
        the coordinator's, except that a fenced producer gets INVALID_PRODUCER_EPOCH, which clients
        expect from a partition. If the coordinator is unknown or cannot be reached, the code is
        COORDINATOR_NOT_AVAILABLE or NETWORK_EXCEPTION, which the caller maps to a retriable one.
        """


class NobodyVerifies:
    """A broker without a transaction coordinator accepts no transactional writes."""

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
