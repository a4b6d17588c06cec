"""A fake transaction coordinator: returns what a test sets, and records its requests."""

from collections.abc import Mapping, Sequence

from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    ListedTransactions,
    ListTransactions,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

NONE = ErrorCode.NONE


class FakeTransactionCoordinator:
    """`code` is the response to every request whose response is only an error code."""

    def __init__(self) -> None:
        self.requests: list[object] = []
        self.connection: int | None = None  # set by the last request
        self.code = NONE
        self.topic_code = NONE  # returned by `ensure_topic`
        self.partition = 0
        self.initialised = InitProducerIdReply(code=NONE, producer_id=7, producer_epoch=3)
        self.ended = EndTxnReply(NONE)
        self.unverified: dict[TopicPartition, ErrorCode] = {}
        self.described: dict[str, DescribedTransaction] = {}
        self.listed = ListedTransactions(NONE)

    async def ensure_topic(self) -> ErrorCode:
        self.requests.append("ensure_topic")
        return self.topic_code

    def partition_of(self, transactional_id: str) -> int:
        return self.partition

    async def init_producer_id(self, request: InitProducerId) -> InitProducerIdReply:
        self.requests.append(request)
        return self.initialised

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
        self.connection = connection
        who = (transactional_id, producer_id, producer_epoch)
        self.requests.append(("add", *who, tuple(partitions), version))
        return self.code

    async def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]:
        who = (transactional_id, producer_id, producer_epoch)
        self.requests.append(("verify", *who, tuple(partitions)))
        return {partition: self.unverified.get(partition, self.code) for partition in partitions}

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        version: int,
        connection: int | None = None,
    ) -> EndTxnReply:
        self.connection = connection
        self.requests.append((transactional_id, producer_id, producer_epoch, commit, version))
        return self.ended

    def describe(self, transactional_id: str) -> DescribedTransaction:
        self.requests.append(transactional_id)
        return self.described[transactional_id]

    def list(self, request: ListTransactions) -> ListedTransactions:
        self.requests.append(request)
        return self.listed
