"""The log of leases: a topic of renewals, one record each, with the query as its key.

Those who work for a query renew its lease while they run. A batch that is shorter than the interval
writes nothing here: its new transactions are signs of life enough. Records are of use for seconds,
so that the topic keeps them for minutes, and the leader alone acknowledges them: a lost one is
followed by the next. A task of a longer batch also tells its driver's keeper (`driver_keeper`)
which query a planned batch is of: an introduction, which is no sign of life and has its own key.
"""

import json
import os
import socket
import time
from typing import Any, NamedTuple

from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST, FetchFrom
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
_INTRODUCTION = b"plan/"  # begins its key; queries' names have no slash


class Introduction(NamedTuple):
    plan: str
    query: str
    run: str | None


async def renew_lease(client: ClusterClient, query: str, *, timeout_ms: int) -> None:
    holder = {"host": socket.gethostname(), "pid": os.getpid()}
    await _append(client, query.encode(), holder, timeout_ms)


async def introduce(client: ClusterClient, introduction: Introduction, *, timeout_ms: int) -> None:
    fields = {"query": introduction.query, "run": introduction.run}
    await _append(client, _INTRODUCTION + introduction.plan.encode(), fields, timeout_ms)


async def _append(client: ClusterClient, key: bytes, fields: Any, timeout_ms: int) -> None:
    await _create_topic(client, timeout_ms)
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([Record(0, now_ms, key, json.dumps(fields).encode())])
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


class _LeaseLogReader:
    """Reads each record once. A call that fails reads nothing: the next one reads it again. Owned
    by one event loop."""

    def __init__(self, client: ClusterClient, *, begins_at: int, timeout_ms: int) -> None:
        self._client = client
        self._begins_at = begins_at
        self._timeout_ms = timeout_ms
        self._next_offset: int | None = None

    async def read_records(self) -> list[Record]:
        """What was written since the last call. The topic must exist."""
        end = await self._find_offset(LATEST)
        start = self._next_offset
        if start is None or start > end:  # the topic was made anew
            start = await self._find_offset(self._begins_at)
        records: list[Record] = []
        while start < end:
            start, some = await self._read_some(start, end)
            records += some
        self._next_offset = start
        return records

    async def topic_exists(self) -> bool:
        metadata = await self._client.metadata([LEASES_TOPIC], timeout_ms=self._timeout_ms)
        return metadata.topics[LEASES_TOPIC].error is ErrorCode.NONE

    async def _read_some(self, start: int, end: int) -> tuple[int, list[Record]]:
        (fetched,) = await self._client.fetch(
            [FetchFrom(_TP, Offset(start))], max_wait_ms=0, timeout_ms=self._timeout_ms
        )
        if fetched.error:
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._next_offset = None  # too old, and deleted: the next call begins anew
            raise RefusedByBroker(f"read {_TP}", fetched.error)
        bounds = OffsetBounds(start, end)
        visible = visible_batches(fetched.batches, bounds, aborted=(), check_crc=True)
        records = [
            record
            for batch in visible.batches
            for record in iter_records(batch.view(fetched.batches))
        ]
        return visible.next_offset, records

    async def _find_offset(self, timestamp: int) -> int:
        listed = await self._client.list_offsets({_TP: timestamp}, timeout_ms=self._timeout_ms)
        return listed[_TP].offset


class RenewalReader(_LeaseLogReader):
    """Reads which queries renew their leases from its first call on."""

    def __init__(self, client: ClusterClient, *, timeout_ms: int) -> None:
        super().__init__(client, begins_at=LATEST, timeout_ms=timeout_ms)

    async def read(self) -> set[str]:
        """The queries that have renewed since the last call. The topic must exist."""
        keys = {bytes(record.key or b"") for record in await self.read_records()}
        return {key.decode(errors="replace") for key in keys if not key.startswith(_INTRODUCTION)}


class IntroductionReader(_LeaseLogReader):
    """Reads which query a planned batch is of. It begins with the oldest record: a batch may
    be introduced before its driver's keeper reads for the first time."""

    def __init__(self, client: ClusterClient, *, timeout_ms: int) -> None:
        super().__init__(client, begins_at=EARLIEST, timeout_ms=timeout_ms)

    async def read(self) -> list[Introduction]:
        if not await self.topic_exists():
            return []
        return [
            introduction
            for record in await self.read_records()
            if (introduction := _find_introduction(record)) is not None
        ]


def _find_introduction(record: Record) -> Introduction | None:
    key = bytes(record.key or b"")
    if not key.startswith(_INTRODUCTION):
        return None
    try:
        fields = json.loads(bytes(record.value or b""))
        plan = key.removeprefix(_INTRODUCTION).decode()
        return Introduction(plan, str(fields["query"]), fields["run"])
    except (ValueError, TypeError, KeyError):
        return None  # of no known version
