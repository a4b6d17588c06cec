"""`penstock table` on Spark as a process: killed, continued, and read by other readers."""

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
from tests.profile import is_long, scaled
from tests.spark.synced_tables import dead_letters, files_of, open_synced, positions_of, read_table
from tests.spark.topics import (
    Sent,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    send,
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
TIMEOUT_S = 600  # a sync takes seconds, but minutes on a busy machine
FINISHES_BY_COMMAND = scaled(test=0, verify=1, release=1)


class Scenario(NamedTuple):
    kind: TableFormat
    records: int
    kills: int  # 0: skipped in this profile


SCENARIOS = [
    Scenario(
        TableFormat.DELTA,
        scaled(test=0, verify=1_000_000, release=5_000_000),
        scaled(test=0, verify=4, release=10),
    ),
    *(
        Scenario(
            kind,
            scaled(test=0, verify=200_000, release=1_000_000),
            scaled(test=0, verify=2, release=4),
        )
        for kind in (TableFormat.ICEBERG, TableFormat.PARQUET)
    ),
]
SCENARIO_PARAMS = [
    pytest.param(scenario, id=scenario.kind) for scenario in SCENARIOS if scenario.kills
]
# Where successive runs are killed: fail point and batch of the run.
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
    """Runs `penstock table sync` in its own process group, so that one signal also reaches Spark
    and its workers. When it halts, it creates a file named after the fail point."""
    halts: dict[str, str] = {}
    if halts_at is not None:
        halts = {POINTS_VARIABLE: halts_at.name, FOLDER_VARIABLE: str(halts_at.parent)}
    options = ("--dir", str(folder), "--master", "local[2]", "--json")
    process = subprocess.Popen(
        [PENSTOCK, "table", "sync", *arguments, *options],
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
def topic_with_table(broker: penstock.Broker, topic_name: str, scenario: Scenario) -> Iterator[str]:
    """A topic whose config describes its table. A sync without a topic syncs all such topics."""
    servers = broker.bootstrap_servers
    wanted = {"penstock.table.format": scenario.kind.value, "penstock.table.value": "json"}
    create_topic(servers, topic_name, partitions=PARTITIONS, config=wanted)
    for first in range(0, scenario.records, 50_000):  # the producer's queue is limited
        send(servers, topic_name, numbered(first, min(50_000, scenario.records - first)))
    yield topic_name
    delete_topic(servers, topic_name)


@pytest.mark.parametrize("scenario", SCENARIO_PARAMS)
def test_repeatedly_killed_sync_has_every_record_once(
    spark: SparkSession,
    java: JavaHome,
    broker: penstock.Broker,
    topic_with_table: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    scenario: Scenario,
) -> None:
    """Kills all its processes with SIGKILL before and after a commit and while files are
    written."""
    most = ("--max-records", str(scenario.records // (3 * scenario.kills + 2)))
    for fail_point in islice(cycle(KILLED_AT), scenario.kills):
        halt = tmp_path_factory.mktemp("halts") / fail_point
        with syncing(tmp_path, broker, *most, halts_at=halt) as process:
            wait_halted(process, halt)
            os.killpg(process.pid, signal.SIGKILL)
    left = status_of(tmp_path, broker)
    assert left["topic"] == topic_with_table
    assert 0 < left["lag"] == scenario.records - left["rows"] < scenario.records

    assert finish(spark, broker, topic_with_table, tmp_path, scenario) == left["lag"]
    _check_rows(topic_with_table, tmp_path, scenario)
    assert status_of(tmp_path, broker)["lag"] == 0
    _check_history(spark, broker, topic_with_table, tmp_path, scenario.records)


def finish(
    spark: SparkSession, broker: penstock.Broker, topic: str, folder: Path, scenario: Scenario
) -> int:
    """Syncs the rest with the command, or on the tests' own Spark in the short profile."""
    if not FINISHES_BY_COMMAND:
        tasks = SparkRunner(spark)
        table = open_synced(broker, folder, topic, run_tasks=tasks, task_records=scenario.records)
        return sum(progress.rows for progress in table.drain())
    with syncing(folder, broker, "--once") as process:
        out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    totals: dict[str, Any] = json.loads(out.splitlines()[-1])
    return int(totals["tables"][topic]["rows"])


def _check_rows(topic: str, folder: Path, scenario: Scenario) -> None:
    records = scenario.records
    files = files_of(folder, topic, scenario.kind)
    assert len(set(files)) == len(files)
    written = list((folder / topic).rglob("part-*.parquet"))
    assert len(written) > len(files), "no kill left an uncommitted file"
    rows = read_table(folder, topic, scenario.kind)
    assert rows.num_rows == len(pc.unique(rows.column("n"))) == records
    assert pc.sum(rows.column("n")).as_py() == records * (records - 1) // 2
    assert pc.sum(rows.column("half")).as_py() == pytest.approx(records * (records - 1) / 4)


def status_of(folder: Path, broker: penstock.Broker) -> dict[str, Any]:
    """The output of `penstock table status`."""
    options = ("--bootstrap", broker.bootstrap_servers, "--dir", str(folder))
    command = [PENSTOCK, "table", "status", *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    status: dict[str, Any] = json.loads(done.stdout)
    return status


def _check_history(
    spark: SparkSession, broker: penstock.Broker, topic: str, folder: Path, records: int
) -> None:
    """After retention deletes the first half, history and live records are the whole topic."""
    servers = broker.bootstrap_servers
    ends = end_offsets(servers, topic, PARTITIONS)
    delete_records(servers, topic, {number: end // 2 for number, end in ends.items()})
    send(servers, topic, numbered(records, 1000))
    rows = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("history", str(folder))
        .load()
    )
    totals_row = rows.selectExpr(
        "count(*) AS rows",
        "count(DISTINCT partition, offset) AS places",
        "sum(cast(get_json_object(cast(value AS string), '$.n') AS bigint)) AS total",
    ).first()
    assert totals_row is not None
    total = records + 1000
    assert totals_row.asDict() == {
        "rows": total,
        "places": total,
        "total": total * (total - 1) // 2,
    }


@pytest.mark.parametrize(
    "kind", [TableFormat.ICEBERG, TableFormat.PARQUET] if is_long() else [TableFormat.PARQUET]
)
def test_tasks_on_spark_write_readable_tables(
    spark: SparkSession,
    broker: penstock.Broker,
    topic_name: str,
    tmp_path: Path,
    kind: TableFormat,
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, [*numbered(0, 999), Sent(b"no JSON")])
    table = open_synced(
        broker,
        tmp_path,
        topic_name,
        run_tasks=SparkRunner(spark),
        options={"format": kind, "value": "json"},
    )
    assert table.sync.run_batch() is not None
    assert table.sync.run_batch() is None
    rows = read_table(tmp_path, topic_name, kind)
    assert sorted(rows.column("n").to_pylist()) == list(range(999))
    assert len(set(positions_of(rows))) == 999
    (letter,) = dead_letters(tmp_path, topic_name, kind)
    assert letter["_value"] == b"no JSON"
    table.tables.close()
