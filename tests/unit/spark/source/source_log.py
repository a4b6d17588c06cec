"""A topic that is written batch by batch, and a query that reads it as Spark does.

The query makes the same calls in the same order, with offsets as JSON text and a checkpoint that
outlives the reader.
"""

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.client.admin_values import NewTopic
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.spark.connect.connections import BlockingClient, ClientSettings, shared_client
from penstock.spark.source.options import ReadMode, SourceOptions, parse_source_options
from penstock.spark.source.stream_reader import PenstockStreamReader

Rows = list[tuple[int, int, bytes]]  # partition, offset, value


class Log:
    """One topic."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers = servers
        self.topic = topic

    @property
    def client(self) -> BlockingClient:
        return shared_client(ClientSettings(self.servers))

    def tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def create(self, partitions: int = 1, **configs: str) -> None:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        topic = NewTopic(name=self.topic, partitions=partitions, configs=dotted)
        self.client.run(lambda client: client.admin.create_topics([topic]))

    def delete(self) -> None:
        self.client.run(lambda client: client.admin.delete_topics([self.topic]))

    def add_partitions(self, partitions: int) -> None:
        self.client.run(lambda client: client.admin.create_partitions({self.topic: partitions}))

    def delete_records(self, partition: int, offset: int) -> None:
        """Delete the records before this offset."""
        before = {self.tp(partition): Offset(offset)}
        self.client.run(lambda client: client.admin.delete_records(before))

    def write(self, partition: int, values: Sequence[bytes], *, time_ms: int = 1_000) -> None:
        """Append one batch."""
        records = [Record(index, time_ms, None, value) for index, value in enumerate(values)]
        self.client.produce(self.tp(partition), build_batch(records))

    def options(self, mode: ReadMode = ReadMode.STREAM, /, **options: str) -> SourceOptions:
        dotted = {name.replace("__", "."): value for name, value in options.items()}
        subscription = (
            {} if {"assign", "subscribePattern"} & dotted.keys() else {"subscribe": self.topic}
        )
        servers = {"kafka.bootstrap.servers": self.servers}
        return parse_source_options({**servers, **subscription, **dotted}, mode)


class Query:
    """A streaming query and its checkpoint; `crash` kills the process that plans."""

    def __init__(self, options: SourceOptions, *, available_now: bool = False) -> None:
        self._options = options
        self._available_now = available_now
        self.offset_log: list[str] = []  # the end of each batch, saved before it runs
        self.committed = 0  # batches that completed
        self.crash()

    def crash(self) -> None:
        """Drop everything but the checkpoint."""
        self.reader = PenstockStreamReader(self._options, ("partition", "offset", "value"))
        if self._available_now:
            self.reader.prepareForTriggerAvailableNow()

    def run_batch(self) -> Rows | None:
        """Run one batch and return its rows; None without new records."""
        planned = self.plan_batch()
        if planned is None:
            return None
        rows = self.read(planned)
        self.committed += 1
        return rows

    def plan_batch(self) -> Sequence[Any] | None:
        start = self.offset_log[self.committed - 1] if self.committed else None
        begin = json.dumps(self.reader.initialOffset()) if start is None else start
        if len(self.offset_log) == self.committed:
            limit = self.reader.getDefaultReadLimit()
            end = json.dumps(self.reader.latestOffset(json.loads(begin), limit))
            if end == start:
                return None
            self.offset_log.append(end)
        end = self.offset_log[self.committed]
        return self.reader.partitions(json.loads(begin), json.loads(end))

    def read(self, planned: Sequence[Any]) -> Rows:
        """Read like an executor, which receives only what can be pickled."""
        rows: Rows = []
        for part in planned:
            reader, work = pickle.loads(pickle.dumps((self.reader, part)))
            for batch in reader.read(work):
                rows += [tuple(row.values()) for row in batch.to_pylist()]
        return rows

    def drain(self) -> list[Rows]:
        batches: list[Rows] = []
        while (rows := self.run_batch()) is not None:
            batches.append(rows)
        return batches

    def end(self) -> Mapping[str, Any]:
        offset: dict[str, Any] = json.loads(self.offset_log[-1])
        return offset


def values(batches: Sequence[Rows] | Rows | None) -> list[bytes]:
    """Return the values of all rows, in the order read."""
    flat: list[bytes] = []
    for batch in batches or ():
        flat += values(batch) if isinstance(batch, list) else [batch[2]]
    return flat


ALL = ReadAllAvailable()
