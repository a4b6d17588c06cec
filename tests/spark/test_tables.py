"""`penstock table` on Spark, as a user runs it: killed, gone on with, and read by others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.profile import scaled
from tests.spark.table_keeping import dead_letters, keep, places_of, read_table
from tests.spark.topics import Sent, create_topic, end_offsets, send, trim

import penstock
from penstock.config.java import JavaHome
from penstock.spark.tables.spark_runner import SparkRunner
from penstock.spark.tables.spec import TableFormat

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
PARTITIONS = 4
TIMEOUT_S = 600  # a busy machine takes minutes for what takes seconds
RECORDS = scaled(test=100_000, verify=1_000_000, release=5_000_000)
KILLS = scaled(test=2, verify=4, release=10)
FINISHES_BY_COMMAND = scaled(test=0, verify=1, release=1)


def numbered(first: int, count: int) -> Iterator[Sent]:
    for n in range(first, first + count):
        yield Sent(b'{"n": %d, "half": %.1f}' % (n, n / 2), b"%d" % (n % 97), n % PARTITIONS)


@contextmanager
def syncing(
    folder: Path, broker: penstock.Broker, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """In a group of its own, so that one signal reaches Spark and its workers as well."""
    process = subprocess.Popen(
        [
            PENSTOCK,
            "table",
            "sync",
            *arguments,
            "--dir",
            str(folder),
            "--master",
            "local[2]",
            "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PENSTOCK_BOOTSTRAP": broker.bootstrap_servers,
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # a quick start
        },
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_a_sync_that_is_killed_again_and_again_has_every_record_once(
    spark: SparkSession, java: JavaHome, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """kill -9 of all its processes, somewhere between two commits. The topic says itself what table
    it wants."""
    servers = broker.bootstrap_servers
    wanted = {"penstock.table.format": "delta", "penstock.table.value": "json"}
    create_topic(servers, topic_name, partitions=PARTITIONS, config=wanted)
    for first in range(0, RECORDS, 50_000):  # a producer's queue takes no more at once
        send(servers, topic_name, numbered(first, min(50_000, RECORDS - first)))
    most = ("--max-records", str(RECORDS // (3 * KILLS + 2)))
    for _ in range(KILLS):
        with syncing(tmp_path, broker, *most) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            os.killpg(process.pid, signal.SIGKILL)
        assert [json.loads(line)["topic"] for line in lines] == [topic_name] * 3
    left = status_of(tmp_path, broker)
    assert left["topic"] == topic_name
    assert 0 < left["lag"] == RECORDS - left["rows"] < RECORDS

    assert finish(spark, broker, topic_name, tmp_path) == left["lag"]
    paths = DeltaTable(tmp_path / topic_name).file_uris()
    assert len(set(paths)) == len(paths)
    rows = read_table(tmp_path, topic_name, TableFormat.DELTA)
    assert rows.num_rows == len(pc.unique(rows.column("n"))) == RECORDS
    assert pc.sum(rows.column("n")).as_py() == RECORDS * (RECORDS - 1) // 2
    assert pc.sum(rows.column("half")).as_py() == pytest.approx(RECORDS * (RECORDS - 1) / 4)
    assert status_of(tmp_path, broker)["lag"] == 0
    _check_history(spark, broker, topic_name, tmp_path)


def finish(spark: SparkSession, broker: penstock.Broker, topic: str, folder: Path) -> int:
    """The rest, as a user does it, or on the tests' own Spark where time is short."""
    if not FINISHES_BY_COMMAND:
        tasks = SparkRunner(spark)
        keeper = keep(broker, folder, topic, run_tasks=tasks, task_records=RECORDS)
        return sum(each.rows for each in keeper.drain())
    with syncing(folder, broker, "--once") as process:
        out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    totals: dict[str, Any] = json.loads(out.splitlines()[-1])
    return int(totals["tables"][topic]["rows"])


def status_of(folder: Path, broker: penstock.Broker) -> dict[str, Any]:
    """As a user sees it."""
    place = ("--bootstrap", broker.bootstrap_servers, "--dir", str(folder))
    command = [PENSTOCK, "table", "status", *place, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    status: dict[str, Any] = json.loads(done.stdout)
    return status


def _check_history(spark: SparkSession, broker: penstock.Broker, topic: str, folder: Path) -> None:
    """Retention takes the first half away; old and live together are the topic from offset 0."""
    servers = broker.bootstrap_servers
    ends = end_offsets(servers, topic, PARTITIONS)
    trim(servers, topic, {number: end // 2 for number, end in ends.items()})
    send(servers, topic, numbered(RECORDS, 1000))
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
    total = RECORDS + 1000
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
