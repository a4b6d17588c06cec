"""`penstock table` on Spark, as a user runs it: killed, gone on with, and read by others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.profile import scaled
from tests.spark.table_keeping import dead_letters, files_of, keep, places_of, read_table
from tests.spark.topics import (
    Sent,
    create_topic,
    delete_topic,
    end_offsets,
    send,
    trim,
    wait_until,
)

import penstock
from penstock.config.java import JavaHome
from penstock.spark.sink.exactly_once.fail_points import FOLDER_VARIABLE, POINTS_VARIABLE
from penstock.spark.tables.spark_runner import SparkRunner
from penstock.spark.tables.spec import TableFormat
from penstock.spark.tables.sync_fail_points import SyncFailPoint

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
PARTITIONS = 4
TIMEOUT_S = 600  # a busy machine takes minutes for what takes seconds
FINISHES_BY_COMMAND = scaled(test=0, verify=1, release=1)


class Story(NamedTuple):
    kind: TableFormat
    records: int
    kills: int  # none: not told this time


STORIES = [
    Story(
        TableFormat.DELTA,
        scaled(test=100_000, verify=1_000_000, release=5_000_000),
        scaled(test=2, verify=4, release=10),
    ),
    *(
        Story(
            kind,
            scaled(test=0, verify=200_000, release=1_000_000),
            scaled(test=0, verify=2, release=4),
        )
        for kind in (TableFormat.ICEBERG, TableFormat.PARQUET)
    ),
]
TOLD = [pytest.param(story, id=story.kind) for story in STORIES if story.kills]
# Where one run after the other is killed: a point, and the batch of the run.
KILLED_AT = (
    *(f"{SyncFailPoint.WRITING}@2", f"{SyncFailPoint.COMMITTED}@2"),
    *(f"{SyncFailPoint.WRITTEN}@3", f"{SyncFailPoint.PLANNED}@2"),
)


def numbered(first: int, count: int) -> Iterator[Sent]:
    for n in range(first, first + count):
        yield Sent(b'{"n": %d, "half": %.1f}' % (n, n / 2), b"%d" % (n % 97), n % PARTITIONS)


@contextmanager
def syncing(
    folder: Path, broker: penstock.Broker, *arguments: str, halts_at: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """In a group of its own, so that one signal reaches Spark and its workers as well. Where it
    halts there is a file, named by the point."""
    halts: dict[str, str] = {}
    if halts_at is not None:
        halts = {POINTS_VARIABLE: halts_at.name, FOLDER_VARIABLE: str(halts_at.parent)}
    place = ("--dir", str(folder), "--master", "local[2]", "--json")
    process = subprocess.Popen(
        [PENSTOCK, "table", "sync", *arguments, *place],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PENSTOCK_BOOTSTRAP": broker.bootstrap_servers,
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # a quick start
            **halts,
        },
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_halted(process: subprocess.Popen[str], file: Path) -> None:
    def is_there() -> bool:
        assert process.poll() is None, process.communicate()[1]
        return file.exists()

    wait_until(f"it came to {file.name}", is_there, timeout_s=TIMEOUT_S)


@pytest.fixture
def wanting(broker: penstock.Broker, topic_name: str, story: Story) -> Iterator[str]:
    """A topic that says itself what table it wants. A sync that is told no topic keeps all such."""
    servers = broker.bootstrap_servers
    wanted = {"penstock.table.format": story.kind.value, "penstock.table.value": "json"}
    create_topic(servers, topic_name, partitions=PARTITIONS, config=wanted)
    for first in range(0, story.records, 50_000):  # a producer's queue takes no more at once
        send(servers, topic_name, numbered(first, min(50_000, story.records - first)))
    yield topic_name
    delete_topic(servers, topic_name)


@pytest.mark.parametrize("story", TOLD)
def test_a_sync_that_is_killed_again_and_again_has_every_record_once(
    spark: SparkSession,
    java: JavaHome,
    broker: penstock.Broker,
    wanting: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    story: Story,
) -> None:
    """kill -9 of all its processes, before and after a commit and while files are written."""
    most = ("--max-records", str(story.records // (3 * story.kills + 2)))
    for place in islice(cycle(KILLED_AT), story.kills):
        halt = tmp_path_factory.mktemp("halts") / place
        with syncing(tmp_path, broker, *most, halts_at=halt) as process:
            wait_halted(process, halt)
            os.killpg(process.pid, signal.SIGKILL)
    left = status_of(tmp_path, broker)
    assert left["topic"] == wanting
    assert 0 < left["lag"] == story.records - left["rows"] < story.records

    assert finish(spark, broker, wanting, tmp_path, story) == left["lag"]
    _check_rows(wanting, tmp_path, story)
    assert status_of(tmp_path, broker)["lag"] == 0
    _check_history(spark, broker, wanting, tmp_path, story.records)


def finish(
    spark: SparkSession, broker: penstock.Broker, topic: str, folder: Path, story: Story
) -> int:
    """The rest, as a user does it, or on the tests' own Spark where time is short."""
    if not FINISHES_BY_COMMAND:
        tasks = SparkRunner(spark)
        keeper = keep(broker, folder, topic, run_tasks=tasks, task_records=story.records)
        return sum(progress.rows for progress in keeper.drain())
    with syncing(folder, broker, "--once") as process:
        out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    totals: dict[str, Any] = json.loads(out.splitlines()[-1])
    return int(totals["tables"][topic]["rows"])


def _check_rows(topic: str, folder: Path, story: Story) -> None:
    records = story.records
    files = files_of(folder, topic, story.kind)
    assert len(set(files)) == len(files)
    written = list((folder / topic).rglob("part-*.parquet"))
    assert len(written) > len(files), "no kill left a file that no commit has named"
    rows = read_table(folder, topic, story.kind)
    assert rows.num_rows == len(pc.unique(rows.column("n"))) == records
    assert pc.sum(rows.column("n")).as_py() == records * (records - 1) // 2
    assert pc.sum(rows.column("half")).as_py() == pytest.approx(records * (records - 1) / 4)


def status_of(folder: Path, broker: penstock.Broker) -> dict[str, Any]:
    """As a user sees it."""
    place = ("--bootstrap", broker.bootstrap_servers, "--dir", str(folder))
    command = [PENSTOCK, "table", "status", *place, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    status: dict[str, Any] = json.loads(done.stdout)
    return status


def _check_history(
    spark: SparkSession, broker: penstock.Broker, topic: str, folder: Path, records: int
) -> None:
    """Retention takes the first half away; old and live together are the topic from offset 0."""
    servers = broker.bootstrap_servers
    ends = end_offsets(servers, topic, PARTITIONS)
    trim(servers, topic, {number: end // 2 for number, end in ends.items()})
    send(servers, topic, numbered(records, 1000))
    rows = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("history", str(folder))
        .load()
    )
    found = rows.selectExpr(
        "count(*) AS rows",
        "count(DISTINCT partition, offset) AS places",
        "sum(cast(get_json_object(cast(value AS string), '$.n') AS bigint)) AS total",
    ).first()
    assert found is not None
    total = records + 1000
    assert found.asDict() == {"rows": total, "places": total, "total": total * (total - 1) // 2}


@pytest.mark.parametrize("kind", [TableFormat.ICEBERG, TableFormat.PARQUET])
def test_tasks_on_spark_write_what_others_read(
    spark: SparkSession,
    broker: penstock.Broker,
    topic_name: str,
    tmp_path: Path,
    kind: TableFormat,
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, [*numbered(0, 999), Sent(b"no JSON")])
    keeper = keep(
        broker,
        tmp_path,
        topic_name,
        run_tasks=SparkRunner(spark),
        said={"format": kind, "value": "json"},
    )
    assert keeper.sync.run_batch() is not None
    assert keeper.sync.run_batch() is None
    rows = read_table(tmp_path, topic_name, kind)
    assert sorted(rows.column("n").to_pylist()) == list(range(999))
    assert len(set(places_of(rows))) == 999
    (letter,) = dead_letters(tmp_path, topic_name, kind)
    assert letter["_value"] == b"no JSON"
    keeper.tables.close()
