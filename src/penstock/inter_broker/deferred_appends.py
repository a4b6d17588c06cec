"""Appends messages that have waited to their target's leader, here or on another broker.

Knows no shards. Invariant: NONE only if every in-sync replica of the target has the batch. A
target's topic counts as deleted once it has been absent from the metadata for a while: a topic that
was just created may not be there yet.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from penstock.coordinators.deferred.dependencies import DeliveryReply
from penstock.coordinators.deferred.values import Target
from penstock.inter_broker.broker_connections import PrivateCalls
from penstock.inter_broker.messages.deferred import (
    DEFERRED_VERSIONS,
    AppendDeferredRequest,
    decode_base_offset,
    encode_append_deferred,
)
from penstock.model.cluster import BrokerId, BrokerNode
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicId, TopicPartition
from penstock.protocol.private_keys import PrivateKey
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.partition import Partition
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.engine import AppendOrigin

APPEND_TIMEOUT_MS = 30_000
DELETED_AFTER_MS = 120_000
MAX_ABSENT = 10_000
_ALL_IN_SYNC = -1


class DeferredAppends:
    """A `DeliveryChannel`. Owned by the event loop."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        brokers: PrivateCalls,
        now_ms: Callable[[], int],  # monotonic
    ) -> None:
        self._own_id = own_id
        self._metadata = metadata
        self._replicas = replicas
        self._brokers = brokers
        self._now_ms = now_ms
        self._absent_since_ms: dict[TopicId, int] = {}

    async def send(self, target: Target, batch: bytearray) -> DeliveryReply:
        return await self._append(target, batch, APPEND_TIMEOUT_MS)

    async def append(self, target: Target, batch: bytearray, *, timeout_ms: int) -> ErrorCode:
        return (await self._append(target, batch, timeout_ms)).code

    async def _append(self, target: Target, batch: bytearray, timeout_ms: int) -> DeliveryReply:
        name = self._metadata.find_name(target.topic_id)
        topic = None if name is None else self._metadata.find_topic(name)
        if topic is None:
            return DeliveryReply(self._judge_absence(target.topic_id))
        self._absent_since_ms.pop(target.topic_id, None)
        if target.partition >= len(topic.partitions):
            return DeliveryReply(ErrorCode.LEADER_NOT_AVAILABLE)
        leader = topic.partitions[target.partition].leader
        if leader == self._own_id:
            return await self.append_here(target, batch, timeout_ms=timeout_ms)
        node = self._metadata.brokers.get(leader)
        if node is None:
            return DeliveryReply(ErrorCode.LEADER_NOT_AVAILABLE)
        return await self._append_there(node, target, batch, timeout_ms)

    def _judge_absence(self, topic_id: TopicId) -> ErrorCode:
        since_ms = self._absent_since_ms.setdefault(topic_id, self._now_ms())
        if self._now_ms() - since_ms < DELETED_AFTER_MS:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if len(self._absent_since_ms) > MAX_ABSENT:
            self._absent_since_ms.clear()  # those that are still needed count again
        return ErrorCode.UNKNOWN_TOPIC_ID

    async def append_here(
        self, target: Target, batch: bytearray, *, timeout_ms: int
    ) -> DeliveryReply:
        partition = self._find(target)
        if partition is None:
            return DeliveryReply(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the sender knows more, or less
        tp = partition.tp
        appended: asyncio.Future[DeliveryReply] = asyncio.get_running_loop().create_future()
        self._replicas.append(
            [(tp, memoryview(batch))],
            acks=_ALL_IN_SYNC,
            timeout_ms=timeout_ms,
            origin=AppendOrigin.DEFERRED,
            done=partial(_set_reply, appended),
        )
        return await appended

    def log_ends(self, sources: Sequence[Target]) -> list[int]:
        """Of partitions that this broker leads. Refusal if it does not."""
        partitions = [self._find(source) for source in sources]
        leading = [one for one in partitions if one is not None and one.is_leader]
        if len(leading) < len(sources):
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return [partition.log_end_offset for partition in leading]

    def _find(self, target: Target) -> Partition | None:
        name = self._metadata.find_name(target.topic_id)
        if name is None:
            return None
        partition = self._replicas.find(TopicPartition(name, target.partition))
        is_same = partition is not None and partition.log.topic_id == target.topic_id
        return partition if is_same else None

    async def _append_there(
        self, node: BrokerNode, target: Target, batch: bytearray, timeout_ms: int
    ) -> DeliveryReply:
        body = encode_append_deferred(AppendDeferredRequest(target, timeout_ms, bytes(batch)))
        try:
            response = await self._brokers.call_private(
                node,
                PrivateKey.APPEND_DEFERRED,
                DEFERRED_VERSIONS,
                lambda version: body,
                timeout_ms=2 * timeout_ms,  # longer than the leader waits for its followers
            )
        except ConnectionError:
            return DeliveryReply(ErrorCode.NETWORK_EXCEPTION)
        return DeliveryReply(response.code, decode_base_offset(response.payload))


def _set_reply(appended: "asyncio.Future[DeliveryReply]", results: list[PartitionAppended]) -> None:
    if not appended.done():  # else the caller was cancelled
        appended.set_result(DeliveryReply(results[0].code, results[0].base_offset))
