"""One task of the sink: Arrow rows in, record batches out, all acknowledged at the end.

Runs in Spark's Python workers. A retried task writes its rows again; which attempt counts is not
decided here.
"""

import asyncio
import random
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.client.cluster import ClusterClient
from penstock.client.metadata import TopicMetadata
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.spark.codec.encode import EncodedBatch, Encoder
from penstock.spark.connect.connections import BlockingClient, shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.batch_sender import BatchSender, ProduceBatch, produce_without_transaction
from penstock.spark.sink.columns import SinkColumns, TopicRows, split_by_topic
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.partitioning import partition_rows
from penstock.spark.warm_process import settle

_TOPIC_POLL_S = 0.1


class WriteResult(NamedTuple):
    rows: int
    end_offsets: dict[TopicPartition, int]  # one past the last row of every partition written to


def write_rows(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: SinkColumns,
    produce: ProduceBatch | None = None,
) -> WriteResult:
    """Returns when the cluster has acknowledged every row. `produce` defaults to no transaction."""
    client = shared_client(options.client)
    timeout_ms = options.delivery_timeout_ms
    sender = BatchSender(
        client,
        produce or produce_without_transaction(acks=options.acks, timeout_ms=timeout_ms),
        timeout_ms=timeout_ms,
        max_bytes=options.buffer_bytes,
    )
    try:
        rows = _TopicWriters(client, options, sender).write(batches, columns)
    except BaseException:
        sender.cancel()
        raise
    settle()
    return WriteResult(rows, dict(sender.end_offsets))


class _TopicWriters:
    def __init__(self, client: BlockingClient, options: SinkOptions, sender: BatchSender) -> None:
        self._client = client
        self._options = options
        self._sender = sender
        self._writers: dict[str, _TopicWriter] = {}

    def write(self, batches: Iterable[pa.RecordBatch], columns: SinkColumns) -> int:
        written = 0
        for batch in batches:
            for rows in split_by_topic(batch, columns, self._options.topic):
                self._get(rows.topic).add(rows)
            written += batch.num_rows
        for writer in self._writers.values():
            writer.flush()
        self._sender.flush()
        return written

    def _get(self, topic: str) -> "_TopicWriter":
        writer = self._writers.get(topic)
        if writer is None:
            partitions = count_partitions(
                self._client, topic, timeout_ms=self._options.topic_timeout_ms
            )
            writer = self._writers[topic] = _TopicWriter(
                topic, partitions, self._options, self._sender
            )
        return writer


class _TopicWriter:
    """Partitions and encodes the rows of one topic and hands the batches to the sender."""

    def __init__(
        self, topic: str, partitions: int, options: SinkOptions, sender: BatchSender
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._sender = sender
        self._encoder = Encoder(
            codec=options.codec, batch_bytes=options.batch_bytes, timestamp_ms=_now_ms
        )
        # So that tasks that start together do not all begin with the same partition.
        self._sticky = random.randrange(partitions)

    def add(self, rows: TopicRows) -> None:
        chosen = self._choose(rows)
        self._send(self._encoder.add(chosen, rows.key, rows.value, rows.headers))

    def flush(self) -> None:
        self._send(self._encoder.flush())

    def _choose(self, rows: TopicRows) -> npt.NDArray[np.int32]:
        if rows.partition is None or rows.partition.null_count == rows.size:
            return self._by_key(rows)
        check_partitions(rows.partition, self._topic, self._partitions)
        explicit: npt.NDArray[np.int32] = rows.partition.fill_null(0).to_numpy()
        if not rows.partition.null_count:
            return explicit
        is_explicit = rows.partition.is_valid().to_numpy(zero_copy_only=False)
        return np.where(is_explicit, explicit, self._by_key(rows)).astype(np.int32)

    def _by_key(self, rows: TopicRows) -> npt.NDArray[np.int32]:
        self._sticky = (self._sticky + 1) % self._partitions
        return partition_rows(rows.key, rows.size, self._partitions, sticky_start=self._sticky)

    def _send(self, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            tp = TopicPartition(self._topic, batch.partition)
            self._sender.send(tp, batch.data, batch.records)


def check_partitions(column: pa.Array, topic: str, partitions: int) -> None:
    """Every value of the column `partition` must be null or a partition of the topic."""
    numbers = column.drop_null().to_numpy()
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < 0 or highest >= partitions:
        wrong = lowest if lowest < 0 else highest
        raise SparkSourceError(
            f"column `partition` has {wrong}, topic {topic!r} has the partitions 0 to "
            f"{partitions - 1}: write one of these, or null to have it chosen by the key"
        )


def count_partitions(client: BlockingClient, topic: str, *, timeout_ms: int) -> int:
    """Creates the topic if the cluster has auto.create.topics.enable, like a producer."""
    metadata = client.run(
        lambda cluster: _wait_for_topic(cluster, topic, timeout_ms),
        timeout_ms=timeout_ms + client.settings.request_timeout_ms,
    )
    if metadata.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise SparkSourceError(
            f"topic {topic!r} does not exist at {client.settings.bootstrap}, and the cluster does "
            f"not create it automatically; run `penstock topic create {topic}`"
        )
    metadata.check()
    return len(metadata.partitions)


async def _wait_for_topic(client: ClusterClient, topic: str, timeout_ms: int) -> TopicMetadata:
    """The topic's metadata once it exists, or after the timeout."""
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        metadata = await client.metadata([topic], allow_auto_creation=True)
        topic_metadata = metadata.topics[topic]
        if not topic_metadata.error.is_retriable or time.monotonic() >= deadline:
            return topic_metadata
        await asyncio.sleep(_TOPIC_POLL_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
