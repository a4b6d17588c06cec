"""Where decisions are kept: a compacted topic, one key a query, written in transactions of the
query's driver.

Invariant: between `begin` and the end of `write`, nobody else has written for this query, or the
write fails: a later `begin` fences this one.
"""

import asyncio
import time
from typing import NamedTuple, Self

from penstock.client.admin_values import NewTopicSpec
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST, FetchFrom, IsolationLevel
from penstock.client.errors import RefusedByBroker
from penstock.client.raw_transaction import RawTransaction
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.spark.codec.visible_batches import OffsetBounds, visible_batches
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once.transactional_ids import driver_transactional_id
from penstock.spark.sink.exactly_once.two_phase_commit import (
    CommitDecision,
    decode_decision,
    encode_decision,
)

DECISIONS_TOPIC = "__penstock_spark_commits"
_PARTITION = TopicPartition(DECISIONS_TOPIC, 0)
_MOST_REPLICAS = 3
# Small segments are soon compacted: who starts reads all that is left.
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 * 1024 * 1024),
    "max.message.bytes": str(16 * 1024 * 1024),  # a batch of 100,000 tasks
}
_TRANSACTION_TIMEOUT_MS = 30_000
_POLL_MS = 100


class DecisionLogState(NamedTuple):
    """Of one query, up to an offset."""

    last: CommitDecision | None
    next_offset: int


class DecisionLog:
    """`begin`, then at most one `write` or `forget`. Owned by one event loop."""

    def __init__(self, query: str, transaction: RawTransaction, read: DecisionLogState) -> None:
        self.read = read
        self._query = query
        self._transaction = transaction

    @classmethod
    async def begin(
        cls,
        client: ClusterClient,
        query: str,
        known: DecisionLogState | None,
        *,
        is_fresh: bool = False,
        timeout_ms: int,
    ) -> Self:
        """Fences whoever decided for this query before. `known`: read earlier by this process.
        `is_fresh`: nobody can have decided before."""
        if known is None:
            await _make_topic(client, timeout_ms)
            known = await _start(client, LATEST if is_fresh else EARLIEST, timeout_ms)
        transaction = await RawTransaction.begin(
            client,
            driver_transactional_id(query),
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            timeout_ms=timeout_ms,
        )
        read = await _read_on(client, query, known, timeout_ms)
        return cls(query, transaction, read)

    async def write(self, decision: CommitDecision, *, timeout_ms: int) -> None:
        """From its return on, the decision holds. After an error it may hold or not."""
        await self._append(encode_decision(decision), timeout_ms)
        self.read = self.read._replace(last=decision)

    async def forget(self, *, timeout_ms: int) -> None:
        """For a query that never comes back."""
        await self._append(None, timeout_ms)
        self.read = self.read._replace(last=None)

    async def _append(self, value: bytes | None, timeout_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch([Record(0, now_ms, self._query.encode(), value)])
        await self._transaction.write(_PARTITION, batch, timeout_ms=timeout_ms)
        await self._transaction.commit(timeout_ms=timeout_ms)


async def _make_topic(client: ClusterClient, timeout_ms: int) -> None:
    metadata = await client.metadata([DECISIONS_TOPIC], timeout_ms=timeout_ms)
    if metadata.topics[DECISIONS_TOPIC].error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    replicas = min(_MOST_REPLICAS, len(metadata.brokers))
    config = {**_TOPIC_CONFIG, "min.insync.replicas": str(max(1, replicas - 1))}
    topic = NewTopicSpec(
        name=DECISIONS_TOPIC, partitions=1, replication_factor=replicas, configs=config
    )
    try:
        await client.admin.create_topics([topic], timeout_ms=timeout_ms)
    except RefusedByBroker as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def _start(client: ClusterClient, place: int, timeout_ms: int) -> DecisionLogState:
    listed = await client.list_offsets({_PARTITION: place}, timeout_ms=timeout_ms)
    return DecisionLogState(None, listed[_PARTITION].offset)


async def _read_on(
    client: ClusterClient, query: str, known: DecisionLogState, timeout_ms: int
) -> DecisionLogState:
    """Up to the high watermark of now. Transactions of other queries' drivers, which are short, may
    hold it back for a while."""
    end = (await _start(client, LATEST, timeout_ms)).next_offset
    read = known
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while read.next_offset < end:
                read = await _read_some(client, query, read, end)
    except TimeoutError:
        raise SparkSourceError(
            f"topic {DECISIONS_TOPIC} could not be read up to offset {end} in "
            f"{timeout_ms / 1000:g} s: an undecided transaction is at {read.next_offset}; see "
            "`penstock transaction find-hanging`"
        ) from None
    return read


async def _read_some(
    client: ClusterClient, query: str, read: DecisionLogState, end: int
) -> DecisionLogState:
    (fetched,) = await client.fetch(
        [FetchFrom(_PARTITION, Offset(read.next_offset))],
        isolation=IsolationLevel.READ_COMMITTED,
        max_wait_ms=_POLL_MS,
    )
    if fetched.error:
        raise RefusedByBroker(f"read {_PARTITION}", fetched.error)
    visible = visible_batches(
        fetched.batches,
        OffsetBounds(read.next_offset, end),
        aborted=fetched.aborted,
        check_crc=True,
    )
    last, key = read.last, query.encode()
    for placed in visible.batches:
        for record in iter_records(placed.view(fetched.batches)):
            if record.key == key:
                last = None if record.value is None else decode_decision(bytes(record.value))
    return DecisionLogState(last, visible.next_offset)
