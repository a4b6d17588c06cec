"""Tells leaders which batches this broker, a follower, refuses, so that they check their logs.

Sends each once: the follower backs off and refuses again, as long as the batch is damaged.
"""

import asyncio
from contextlib import suppress

from penstock.inter_broker.broker_connections import BrokerConnections
from penstock.inter_broker.messages.refused_batch import (
    REFUSED_BATCH_VERSIONS,
    RefusedBatchRequest,
    encode_refused_batch,
)
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition
from penstock.protocol.private_keys import PrivateKey
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.refused_batches import RefusedBatch

TIMEOUT_MS = 10_000


class RefusedBatchesSender:
    """Owned by the event loop; `run` is its task."""

    def __init__(
        self, own_id: BrokerId, *, metadata: MetadataCache, connections: BrokerConnections
    ) -> None:
        self._own_id = own_id
        self._metadata = metadata
        self._connections = connections
        self._pending: dict[TopicPartition, RefusedBatch] = {}  # the latest of each
        self._wake = asyncio.Event()

    def add(self, refused: RefusedBatch) -> None:
        self._pending[refused.tp] = refused
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                _, refused = self._pending.popitem()
                await self._send(refused)

    async def _send(self, refused: RefusedBatch) -> None:
        node = self._metadata.brokers.get(refused.leader)
        if node is None:
            return  # not registered: another broker is about to lead
        body = encode_refused_batch(
            RefusedBatchRequest(self._own_id, refused.tp, refused.leader_epoch, refused.offset)
        )
        with suppress(ConnectionError):  # sent again with the next refusal
            await self._connections.call_private(
                node,
                PrivateKey.REFUSED_BATCH,
                REFUSED_BATCH_VERSIONS,
                lambda version: body,
                timeout_ms=TIMEOUT_MS,
            )
