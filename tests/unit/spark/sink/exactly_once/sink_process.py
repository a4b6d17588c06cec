"""A sink's tasks and driver in one process without Spark, to be killed: `python -m ... ARGUMENTS`.

Also reads the records of a topic that read_committed consumers see.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from penstock.client.data_calls import LATEST, FetchFrom, IsolationLevel
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import iter_records
from penstock.spark.codec.visible_batches import OffsetBounds, visible_batches
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.sink.columns import SinkColumns
from penstock.spark.sink.exactly_once.batch_commit import commit_batch
from penstock.spark.sink.exactly_once.prepared_write import PreparedTransaction, write_prepared
from penstock.spark.sink.exactly_once.transactional_ids import MicroBatchId
from penstock.spark.sink.options import DeliveryGuarantee, SinkOptions

_MODULE = "tests.unit.spark.sink.exactly_once.sink_process"
COLUMNS = SinkColumns(key=-1, value=0, headers=-1, topic=-1, partition=-1)


class Work(NamedTuple):
    """One micro-batch: its tasks' rows and the run of the query that writes them."""

    servers: str
    topic: str
    query: str
    run: str
    batch: int
    tasks: int
    rows: int  # per task
    abandoned_after_ms: int = 3_600_000

    def command(self) -> list[str]:
        return [sys.executable, "-m", _MODULE, json.dumps(self._asdict())]

    @property
    def options(self) -> SinkOptions:
        return SinkOptions(
            ClientSettings(self.servers),
            self.topic,
            delivery=DeliveryGuarantee.EXACTLY_ONCE,
            delivery_timeout_ms=20_000,
            abandoned_after_ms=self.abandoned_after_ms,
        )

    def values(self) -> list[str]:
        return [value for task in range(self.tasks) for value in self._values_of(task)]

    def _values_of(self, task: int) -> list[str]:
        return [f"{self.batch}-{task}-{row}" for row in range(self.rows)]

    def rows_of(self, task: int) -> pa.RecordBatch:
        return pa.record_batch({"value": self._values_of(task)})

    def write(self, task: int) -> PreparedTransaction:
        return self.write_from([self.rows_of(task)])

    def write_from(self, batches: Iterable[pa.RecordBatch]) -> PreparedTransaction:
        """Write the rows of one task."""
        micro_batch = MicroBatchId(self.query, self.run, self.batch)
        written, prepared = write_prepared(batches, self.options, COLUMNS, micro_batch)
        assert written.rows == self.rows
        assert prepared is not None
        return prepared

    def write_all(self) -> list[PreparedTransaction]:
        return [self.write(task) for task in range(self.tasks)]

    def commit(self, prepared: Iterable[PreparedTransaction]) -> None:
        commit_batch(self.options, self.query, self.batch, prepared)


def read_committed(servers: str, topic: str) -> list[str]:
    """Return the values of a topic with one partition, up to the last stable offset."""
    client, tp = shared_client(ClientSettings(servers)), TopicPartition(topic, 0)
    isolation = IsolationLevel.READ_COMMITTED
    end = client.list_offsets({tp: LATEST}, isolation=isolation)[tp].offset
    values: list[str] = []
    offset = 0
    while offset < end:
        (fetched,) = client.fetch([FetchFrom(tp, Offset(offset))], isolation=isolation)
        visible = visible_batches(
            fetched.batches, OffsetBounds(offset, end), aborted=fetched.aborted, check_crc=True
        )
        for batch in visible.batches:
            records = iter_records(batch.view(fetched.batches))
            values.extend(bytes(record.value or b"").decode() for record in records)
        offset = visible.next_offset
    return values


def main() -> None:
    work = Work(**json.loads(sys.argv[1]))
    work.commit(work.write_all())


if __name__ == "__main__":
    main()
