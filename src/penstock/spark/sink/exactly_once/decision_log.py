"""The log of commit decisions: a compacted topic with one key per query, written in transactions
of the query's driver.

Invariant: if another driver writes for this query between `begin` and the end of `write`, the write
fails, because a later `begin` fences this one.
"""

import asyncio
import time
from typing import NamedTuple, Self

from penstock.client.admin_values import NewTopic
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
_TP = TopicPartition(DECISIONS_TOPIC, 0)
_MAX_REPLICAS = 3
# Small segments are compacted early: a driver reads the whole topic when it starts.
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 * 1024 * 1024),
    "max.message.bytes": str(16 * 1024 * 1024),  # enough for a batch of 100,000 tasks
}
_TRANSACTION_TIMEOUT_MS = 30_000
_POLL_MS = 100


class DecisionLogState(NamedTuple):
    """The log as read for one query, up to an offset."""

    last: CommitDecision | None
    next_offset: int


class DecisionLog:
    """`begin`, then at most one `write` or `forget`. Owned by one event loop."""

    def __init__(self, query: str, transaction: RawTransaction, state: DecisionLogState) -> None:
        self.state = state
        self._query = query
        self._transaction = transaction

    @classmethod
    async def begin(
        cls,
        client: ClusterClient,
        query: str,
        previous: DecisionLogState | None,
        *,
        since_ms: int | None = None,
        timeout_ms: int,
    ) -> Self:
        """Fences the query's earlier drivers. `previous`: what this process has read before.
        `since_ms`: the query has no earlier decision."""
        if previous is None:
            await _create_topic(client, timeout_ms)
            previous = await _start(client, since_ms, timeout_ms)
        transaction = await RawTransaction.begin(
            client,
            driver_transactional_id(query),
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            timeout_ms=timeout_ms,
        )
        state = await _catch_up(client, query, previous, timeout_ms)
        return cls(query, transaction, state)

    async def write(self, decision: CommitDecision, *, timeout_ms: int) -> None:
        """On return the decision is in effect. After an error it may or may not be."""
        await self._append(encode_decision(decision), timeout_ms)
        self.state = self.state._replace(last=decision)

    async def forget(self, *, timeout_ms: int) -> None:
        """Remove the query's decision, because it never runs again."""
        await self._append(None, timeout_ms)
        self.state = self.state._replace(last=None)

    async def _append(self, value: bytes | None, timeout_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch([Record(0, now_ms, self._query.encode(), value)])
        await self._transaction.write(_TP, batch, timeout_ms=timeout_ms)
        await self._transaction.commit(timeout_ms=timeout_ms)


async def _create_topic(client: ClusterClient, timeout_ms: int) -> None:
    metadata = await client.metadata([DECISIONS_TOPIC], timeout_ms=timeout_ms)
    if metadata.topics[DECISIONS_TOPIC].error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    replicas = min(_MAX_REPLICAS, len(metadata.brokers))
    config = {**_TOPIC_CONFIG, "min.insync.replicas": str(max(1, replicas - 1))}
    topic = NewTopic(
        name=DECISIONS_TOPIC, partitions=1, replication_factor=replicas, configs=config
    )
    try:
        await client.admin.create_topics([topic], timeout_ms=timeout_ms)
    except RefusedByBroker as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def _start(client: ClusterClient, since_ms: int | None, timeout_ms: int) -> DecisionLogState:
    if since_ms is None:
        return DecisionLogState(None, await _find_offset(client, EARLIEST, timeout_ms))
    # In this order: a decision that is written meanwhile is at `end` or after it.
    end = await _find_offset(client, LATEST, timeout_ms)
    first = await _find_offset(client, since_ms, timeout_ms)
    return DecisionLogState(None, end if first < 0 else first)


async def _find_offset(client: ClusterClient, timestamp: int, timeout_ms: int) -> int:
    """Negative: there is no record with this timestamp or a later one."""
    listed = await client.list_offsets({_TP: timestamp}, timeout_ms=timeout_ms)
    return listed[_TP].offset


async def _catch_up(
    client: ClusterClient, query: str, state: DecisionLogState, timeout_ms: int
) -> DecisionLogState:
    """Read to the current high watermark. Open transactions of other queries' drivers, which are
    short, may hold back the last stable offset for a while."""
    end = await _find_offset(client, LATEST, timeout_ms)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while state.next_offset < end:
                state = await _read_some(client, query, state, end)
    except TimeoutError:
        raise SparkSourceError(
            f"cannot read topic {DECISIONS_TOPIC} up to offset {end} within "
            f"{timeout_ms / 1000:g} s: an undecided transaction is at {state.next_offset}; see "
            "`penstock transaction find-hanging`"
        ) from None
    return state


async def _read_some(
    client: ClusterClient, query: str, state: DecisionLogState, end: int
) -> DecisionLogState:
    (fetched,) = await client.fetch(
        [FetchFrom(_TP, Offset(state.next_offset))],
        isolation=IsolationLevel.READ_COMMITTED,
        max_wait_ms=_POLL_MS,
    )
    if fetched.error:
        raise RefusedByBroker(f"read {_TP}", fetched.error)
    visible = visible_batches(
        fetched.batches,
        OffsetBounds(state.next_offset, end),
        aborted=fetched.aborted,
        check_crc=True,
    )
    last, key = state.last, query.encode()
    for batch in visible.batches:
        for record in iter_records(batch.view(fetched.batches)):
            if record.key == key:
                last = None if record.value is None else decode_decision(bytes(record.value))
    return DecisionLogState(last, visible.next_offset)
