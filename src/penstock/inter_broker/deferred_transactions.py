"""Adds a shard of deferred messages to the transaction that messages are sent in.

So the transaction's marker comes to the shard, too, and decides. Knows no messages. Invariant: a
shard writes messages of a transaction only while that is open, as the shard's own log sees it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from penstock.coordinators.deferred.defer import SentBy
from penstock.coordinators.deferred.shard import FindRefusal
from penstock.coordinators.deferred.values import InTransaction, Target
from penstock.model.cluster import DEFERRED_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.replication.transaction_guard import TransactionGuard

if TYPE_CHECKING:
    from penstock.apis.transaction_service import VerifiesTransactions

_Codes = Mapping[TopicPartition, ErrorCode]


class DeferredTransactions(NamedTuple):
    metadata: MetadataCache
    replicas: ReplicaManager
    get_verifier: "Callable[[], VerifiesTransactions]"

    @asynccontextmanager
    async def join(
        self, shard: int, sent_by: SentBy, transaction: InTransaction
    ) -> AsyncIterator[FindRefusal]:
        """Call what this yields right before the messages are written."""
        tp = TopicPartition(DEFERRED_TOPIC, shard)
        partition = self.replicas.find(tp)
        if partition is None or partition.leadership is None:
            yield lambda: ErrorCode.NOT_COORDINATOR
            return
        producer = sent_by.producer_id, sent_by.producer_epoch
        guard = TransactionGuard(partition, *producer)
        try:
            if partition.log.producers.has_transaction(*producer):
                code = ErrorCode.NONE
            else:
                code = await self._add(tp, sent_by, transaction)
            yield lambda: _refusal_of(code, guard)
        finally:
            guard.close()

    async def _add(
        self, shard: TopicPartition, sent_by: SentBy, transaction: InTransaction
    ) -> ErrorCode:
        """A producer that adds its partitions by itself may have ended the transaction meanwhile:
        then this has begun another, in which its target is not."""
        code = await self._ask(shard, sent_by, transaction, adds=True)
        if code is not ErrorCode.NONE or transaction.is_added:
            return code
        target = self._find_tp(sent_by.target)
        if target is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return await self._ask(target, sent_by, transaction, adds=False)

    def _find_tp(self, target: Target) -> TopicPartition | None:
        name = self.metadata.find_name(target.topic_id)
        return None if name is None else TopicPartition(name, target.partition)

    async def _ask(
        self, tp: TopicPartition, sent_by: SentBy, transaction: InTransaction, *, adds: bool
    ) -> ErrorCode:
        answered: asyncio.Future[_Codes] = asyncio.get_running_loop().create_future()

        def done(codes: _Codes) -> None:
            if not answered.done():  # else this request was cancelled
                answered.set_result(codes)

        partitions: Sequence[TopicPartition] = [tp]
        self.get_verifier().verify(
            transaction.transactional_id,
            sent_by.producer_id,
            sent_by.producer_epoch,
            partitions,
            adds=adds,
            done=done,
        )
        return (await answered).get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)


def _refusal_of(code: ErrorCode, guard: TransactionGuard) -> ErrorCode:
    if code is not ErrorCode.NONE:
        return code
    refusal = guard.find_refusal()
    is_elsewhere = refusal is ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NOT_COORDINATOR if is_elsewhere else refusal
