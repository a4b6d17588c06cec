"""The log of leases: a topic of renewals, one record each, with the query as its key.

Those who work for a query renew its lease while they run. A batch that is shorter than the interval
writes nothing here: its new transactions are signs of life enough. Records are of use for seconds,
so that the topic keeps them for minutes, and the leader alone acknowledges them: a lost one is
followed by the next.
"""

import json
import os
import socket
import time

from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, FetchFrom
from penstock.client.errors import RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.spark.codec.visible_batches import OffsetBounds, visible_batches
from penstock.spark.sink.exactly_once.transactional_ids import LEASES_TOPIC

_TP = TopicPartition(LEASES_TOPIC, 0)
_MAX_REPLICAS = 3
_TOPIC_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(10 * 60_000),
    "segment.ms": str(10 * 60_000),
    "segment.bytes": str(1024 * 1024),
}
_LEADER = 1  # acks


async def renew_lease(client: ClusterClient, query: str, *, timeout_ms: int) -> None:
    await _create_topic(client, timeout_ms)
    now_ms = time.time_ns() // 1_000_000
    holder = json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode()
    batch = build_batch([Record(0, now_ms, query.encode(), holder)])
    await client.produce(_TP, batch, acks=_LEADER, timeout_ms=timeout_ms)


async def _create_topic(client: ClusterClient, timeout_ms: int) -> None:
    metadata = await client.metadata([LEASES_TOPIC], timeout_ms=timeout_ms)
    if metadata.topics[LEASES_TOPIC].error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    topic = NewTopic(
        name=LEASES_TOPIC,
        partitions=1,
        replication_factor=min(_MAX_REPLICAS, len(metadata.brokers)),
        configs=_TOPIC_CONFIG,
    )
    try:
        await client.admin.create_topics([topic], timeout_ms=timeout_ms)
    except RefusedByBroker as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


class RenewalReader:
    """Reads which queries renew their leases, from its first call on; after an error, use another.
    Owned by one event loop."""

    def __init__(self, client: ClusterClient, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._next_offset: int | None = None

    async def read(self) -> set[str]:
        """The queries that have renewed since the last call. The topic must exist."""
        end = await self._find_offset(LATEST)
        if self._next_offset is None or self._next_offset > end:  # the topic was made anew
            self._next_offset = end
        queries: set[str] = set()
        while self._next_offset < end:
            queries |= await self._read_some(self._next_offset, end)
        return queries

    async def _read_some(self, start: int, end: int) -> set[str]:
        (fetched,) = await self._client.fetch(
            [FetchFrom(_TP, Offset(start))], max_wait_ms=0, timeout_ms=self._timeout_ms
        )
        if fetched.error:
            raise RefusedByBroker(f"read {_TP}", fetched.error)
        bounds = OffsetBounds(start, end)
        visible = visible_batches(fetched.batches, bounds, aborted=(), check_crc=True)
        self._next_offset = visible.next_offset
        return {
            bytes(record.key or b"").decode(errors="replace")
            for batch in visible.batches
            for record in iter_records(batch.view(fetched.batches))
        }

    async def _find_offset(self, timestamp: int) -> int:
        listed = await self._client.list_offsets({_TP: timestamp}, timeout_ms=self._timeout_ms)
        return listed[_TP].offset
