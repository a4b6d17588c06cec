"""A query from topic to topic in a process of its own, made to be killed: `python -m ...`.

Also its campaign: runs that are killed where they have come to a point, and what the output then
holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from tests.interop.kafka_broker import Child
from tests.spark.local_spark import local_spark
from tests.spark.topics import Sent, ask, wait_until

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, FetchFrom, Isolation
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import iter_records
from penstock.spark.exactly_once.halting import FOLDER_VARIABLE, POINTS_VARIABLE
from penstock.spark.visible_batches import Bounds, visible_batches

JOB_TIMEOUT_S = 300
POLL_S = 0.02
PARTITIONS = 4
KEYS = 40


class CopyJob(NamedTuple):
    servers: str
    source: str
    target: str
    home: str  # the checkpoint, and Spark's own files
    records_a_batch: int
    delivery: str = "exactly-once"
    master: str = "local[2]"
    settings: Mapping[str, str] = {}

    @property
    def checkpoint(self) -> Path:
        return Path(self.home) / "checkpoint"

    def command(self, halts: str = "", folder: Path | None = None) -> list[str]:
        """Halts where it is told, e.g. `decided@2`, once for each name in the folder."""
        places = [f"{POINTS_VARIABLE}={halts}", f"{FOLDER_VARIABLE}={folder}"]
        module = [sys.executable, "-m", "tests.spark.exactly_once_job"]
        return ["env", *places, *module, json.dumps(self._asdict())]


def run(spark: SparkSession, job: CopyJob) -> None:
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", job.servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", job.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.records_a_batch))
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", job.servers)
        .option("topic", job.target)
        .option("delivery", job.delivery)
        .option("checkpointLocation", str(job.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    os.setsid()  # so that one signal reaches the JVM and its workers as well
    job = CopyJob(**json.loads(sys.argv[1]))
    with local_spark(Path(job.home) / "spark", job.settings, master=job.master) as spark:
        run(spark, job)


# The campaign.


@contextmanager
def running(
    job: CopyJob, log: Path, halts: str = "", folder: Path | None = None
) -> Iterator[Child]:
    """Driver, JVM and workers die by kill -9 when the context ends, if they have not ended."""
    child = Child(job.command(halts, folder), log)
    try:
        yield child
    finally:
        if child.process.poll() is None:
            os.killpg(child.process.pid, signal.SIGKILL)
        child.end(with_signal=None, timeout_s=JOB_TIMEOUT_S)


def wait_halted(child: Child, folder: Path, name: str) -> int:
    """The process that has come to this point."""

    def has_come() -> bool:
        assert child.process.poll() is None, f"ended before {name}: {child.tail()}"
        return (folder / name).exists() and bool((folder / name).read_text())

    wait_until(name, has_come, timeout_s=JOB_TIMEOUT_S)
    return int((folder / name).read_text())


def let_go(folder: Path, name: str) -> None:
    (folder / f"{name}.go").touch()


def run_to_its_end(job: CopyJob, log: Path) -> None:
    with running(job, log) as child:
        status = child.end(with_signal=None, timeout_s=JOB_TIMEOUT_S)
        assert status == 0, child.tail()


def numbered(count: int) -> list[Sent]:
    """A key is in one partition, and its numbers increase."""
    return [
        Sent(str(number).encode(), str(number % KEYS).encode(), number % KEYS % PARTITIONS)
        for number in range(count)
    ]


class Output(NamedTuple):
    counts: Counter[int]
    are_in_order: bool  # the numbers of each key


def read_output(servers: str, topic: str) -> Output:
    """What readers of committed records see."""
    counts: Counter[int] = Counter()
    last: dict[bytes, int] = {}
    are_in_order = True
    for key, number in ask(servers, lambda client: _read(client, topic)):
        counts[number] += 1
        are_in_order &= last.get(key, -1) < number
        last[key] = number
    return Output(counts, are_in_order)


async def _read(client: ClusterClient, topic: str) -> list[tuple[bytes, int]]:
    found: list[tuple[bytes, int]] = []
    for number in range(PARTITIONS):
        partition, at = TopicPartition(topic, number), 0
        committed = Isolation.READ_COMMITTED
        end = await _settled(client, partition)
        while at < end:
            wanted = FetchFrom(partition, Offset(at))
            (fetched,) = await client.fetch([wanted], isolation=committed)
            visible = visible_batches(
                fetched.batches, Bounds(at, end), aborted=fetched.aborted, check_crc=True
            )
            for placed in visible.batches:
                records = iter_records(placed.view(fetched.batches))
                found.extend((bytes(each.key or b""), int(each.value or b"")) for each in records)
            at = visible.next_offset
    return found


async def _settled(client: ClusterClient, partition: TopicPartition) -> int:
    """Its end, when nothing is undecided; a coordinator answers before markers are written."""
    while True:  # as long as the client may take
        ends = [
            (await client.list_offsets({partition: LATEST}, isolation=each))[partition].offset
            for each in Isolation
        ]
        if len(set(ends)) == 1:
            return ends[0]
        await asyncio.sleep(POLL_S)


def open_transactions(servers: str) -> list[str]:
    listed = ask(servers, lambda client: client.transactions.list_transactions(states=["Ongoing"]))
    return [each.transactional_id for each in listed]


if __name__ == "__main__":
    main()
