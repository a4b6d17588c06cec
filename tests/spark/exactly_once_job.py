"""A query from topic to topic in its own process, to be killed: `python -m ...`.

Also runs that are killed at fail points, and what the output holds afterwards.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType
from tests.interop.kafka_broker import Child
from tests.spark.local_spark import local_spark
from tests.spark.topics import Sent, ask, wait_until
from tests.spark.written import has_undecided, read_records

from penstock.spark.data_source import PenstockDataSource
from penstock.spark.sink.exactly_once.fail_points import FOLDER_VARIABLE, POINTS_VARIABLE, halt_at
from penstock.spark.source.offset_json import read_offset
from penstock.spark.source.options import ReadMode, parse_source_options
from penstock.spark.source.schema import find_columns
from penstock.spark.source.stream_reader import PenstockStreamReader

JOB_TIMEOUT_S = 300
STARTS = 4
PARTITIONS = 4
KEYS = 40
HALTING = "penstock-halting"
PLANNING = "planning"  # the start of a batch is known, but not recorded yet
FAILED = "failed"
PLANNED = "planned"  # the batch is in Spark's offset log, but no task runs yet


class CopyJob(NamedTuple):
    servers: str
    source: str
    target: str
    home: str  # checkpoint and Spark's own files
    records_a_batch: int
    delivery: str | None = None  # None: the sink's default
    master: str = "local[2]"
    format: str = "penstock"  # format of the source
    settings: Mapping[str, str] = {}
    abandoned_after: str | None = None  # None: the sink's default
    outlives_query: bool = False  # whether the driver lives on when the query has failed

    @property
    def checkpoint(self) -> Path:
        return Path(self.home) / "checkpoint"

    def command(self, halts: str = "", folder: Path | None = None) -> list[str]:
        """The command line; the job halts at fail points such as `decided@2`, once for each name in
        the folder."""
        variables = [f"{POINTS_VARIABLE}={halts}", f"{FOLDER_VARIABLE}={folder}"]
        module = [sys.executable, "-m", "tests.spark.exactly_once_job"]
        return ["env", *variables, *module, json.dumps(self._asdict())]


def run(spark: SparkSession, job: CopyJob) -> None:
    spark.dataSource.register(HaltingSource)
    rows = (
        spark.readStream.format(job.format)
        .option("kafka.bootstrap.servers", job.servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", job.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.records_a_batch))
        .option("minPartitions", "2")  # so that a batch has several tasks and transactions
        .load()
    )
    writer = (
        rows.select("key", "value")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", job.servers)
        .option("topic", job.target)
        .option("checkpointLocation", str(job.checkpoint))
        .trigger(availableNow=True)
    )
    if job.delivery is not None:
        writer = writer.option("delivery", job.delivery)
    if job.abandoned_after is not None:
        writer = writer.option("abandonedAfter", job.abandoned_after)
    query = writer.start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if not job.outlives_query:
            raise
        print(FAILED, flush=True)
        sys.stdin.read()  # until the test ends this process


class HaltingSource(PenstockDataSource):
    """Halts before and after Spark records what a batch reads."""

    @classmethod
    def name(cls) -> str:
        return HALTING

    def streamReader(self, schema: StructType) -> PenstockStreamReader:  # noqa: N802
        options = parse_source_options(self.options, ReadMode.STREAM)
        return _HaltingReader(options, find_columns(schema))


class _HaltingReader(PenstockStreamReader):
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        halt_at(PLANNING, self._batch_from(start))
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        halt_at(PLANNED, self._batch_from(start))
        return super().partitions(start, end)

    def _batch_from(self, start: dict[str, Any]) -> int:
        """The id of the batch: all batches have the maximal size."""
        records = self._options.max_offsets_per_trigger
        assert records is not None
        return round(sum(read_offset(start).offsets.values()) / records)


def main() -> None:
    os.setsid()  # so that one signal also reaches the JVM and its workers
    job = CopyJob(**json.loads(sys.argv[1]))
    with local_spark(Path(job.home) / "spark", job.settings, master=job.master) as spark:
        run(spark, job)


# Killed runs.


@contextmanager
def running(
    job: CopyJob, log: Path, halts: str = "", folder: Path | None = None
) -> Iterator[Child]:
    """Kills driver, JVM and workers with SIGKILL when the context ends, if they still run."""
    child = Child(job.command(halts, folder), log)
    try:
        yield child
    finally:
        if child.process.poll() is None:
            os.killpg(child.process.pid, signal.SIGKILL)
        child.end(with_signal=None, timeout_s=JOB_TIMEOUT_S)


def wait_halted(child: Child, folder: Path, name: str) -> int:
    """Waits until a process has halted at this point; returns its id."""

    def has_halted() -> bool:
        assert child.process.poll() is None, f"ended before {name}: {child.tail()}"
        return (folder / name).exists() and bool((folder / name).read_text())

    wait_until(name, has_halted, timeout_s=JOB_TIMEOUT_S)
    return int((folder / name).read_text())


def resume(folder: Path, name: str) -> None:
    (folder / f"{name}.go").touch()


def run_to_completion(job: CopyJob, log: Path) -> None:
    """Starts the job again if Spark has given up on a Python process that was slow to start: it
    waits ten seconds, whatever else the machine does, and no setting changes that."""
    for _ in range(STARTS):
        with running(job, log) as child:
            status = child.end(with_signal=None, timeout_s=JOB_TIMEOUT_S)
            if status == 0:
                return
            errors = child.tail()
            assert "CANNOT_OPEN_SOCKET" in log.with_suffix(".err").read_text(), errors
    raise AssertionError(f"{STARTS} starts have failed: {errors}")


def numbered(count: int) -> list[Sent]:
    """Records whose numbers increase within each key; a key has one partition."""
    return [
        Sent(str(number).encode(), str(number % KEYS).encode(), number % KEYS % PARTITIONS)
        for number in range(count)
    ]


class Output(NamedTuple):
    counts: Counter[int]
    are_in_order: bool  # whether the numbers of each key increase


def read_output(servers: str, topic: str) -> Output:
    """What read_committed consumers see when no transaction is undecided."""
    wait_until("no undecided transaction", lambda: not has_undecided(servers, topic))
    counts: Counter[int] = Counter()
    last: dict[bytes, int] = {}
    are_in_order = True
    for record in itertools.chain.from_iterable(read_records(servers, topic).values()):
        key, number = bytes(record.key or b""), int(record.value or b"")
        counts[number] += 1
        are_in_order &= last.get(key, -1) < number
        last[key] = number
    return Output(counts, are_in_order)


def open_transactions(servers: str) -> list[str]:
    listed = ask(servers, lambda client: client.transactions.list_transactions(states=["Ongoing"]))
    return [listing.transactional_id for listing in listed]


if __name__ == "__main__":
    main()
