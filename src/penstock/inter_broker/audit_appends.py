"""Appends audit events to a partition of the audit topic, on its leader, here or elsewhere.

Keeps nothing and repeats nothing: whoever has the events decides. Invariant: NONE only if every
in-sync replica has them.
"""

import asyncio

from penstock.inter_broker.broker_connections import PrivateCalls
from penstock.inter_broker.messages.append_audit import (
    APPEND_AUDIT_VERSIONS,
    AppendAuditRequest,
    encode_append_audit,
)
from penstock.model.cluster import AUDIT_TOPIC, BrokerId, PartitionState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.private_keys import PrivateKey
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.engine import AppendOrigin

TIMEOUT_MS = 10_000
_ALL_IN_SYNC = -1


class AuditAppends:
    """Owned by the event loop."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        brokers: PrivateCalls,
    ) -> None:
        self._own_id = own_id
        self._metadata = metadata
        self._replicas = replicas
        self._brokers = brokers

    async def append(self, batch: bytearray) -> ErrorCode:
        """To a partition that this broker leads if there is one, else to one of another broker."""
        topic = self._metadata.find_topic(AUDIT_TOPIC)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = self._choose(topic.partitions)
        if partition is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        leader = topic.partitions[partition].leader
        if leader == self._own_id:
            return await append_here(self._replicas, partition, batch, timeout_ms=TIMEOUT_MS)
        return await self._append_there(leader, partition, batch)

    def _choose(self, partitions: tuple[PartitionState, ...]) -> int | None:
        led = [
            partition
            for partition, state in enumerate(partitions)
            if state.leader in self._metadata.brokers
        ]
        own = [partition for partition in led if partitions[partition].leader == self._own_id]
        candidates = own or led
        return candidates[self._own_id % len(candidates)] if candidates else None

    async def _append_there(self, leader: BrokerId, partition: int, batch: bytearray) -> ErrorCode:
        body = encode_append_audit(AppendAuditRequest(partition, TIMEOUT_MS, bytes(batch)))
        try:
            response = await self._brokers.call_private(
                self._metadata.brokers[leader],
                PrivateKey.APPEND_AUDIT,
                APPEND_AUDIT_VERSIONS,
                lambda version: body,
                timeout_ms=2 * TIMEOUT_MS,
            )
        except ConnectionError:
            return ErrorCode.NETWORK_EXCEPTION
        return response.code


async def append_here(
    replicas: ReplicaManager, partition: int, batch: bytearray, *, timeout_ms: int
) -> ErrorCode:
    over: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(results: list[PartitionAppended]) -> None:
        if not over.done():
            over.set_result(results[0].code)

    replicas.append(
        [(TopicPartition(AUDIT_TOPIC, partition), memoryview(batch))],
        acks=_ALL_IN_SYNC,
        timeout_ms=timeout_ms,
        origin=AppendOrigin.COORDINATOR,
        done=done,
    )
    return await over
