"""Several targets of one read, and tables that rows are merged into, on a real Spark and broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from tests.profile import is_long
from tests.spark.pipelines import documented, records_of, run_once, values_of, write_pipeline
from tests.spark.topics import Sent, create_topic, send

import penstock


def forget_last_commit(folder: Path, sink: str) -> None:
    """So that the last micro-batch is run again, with the same number and the same records."""
    commits = folder / "checkpoints" / "p" / sink / "commits"
    last = max(
        (path for path in commits.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def test_the_documented_targets_are_written_by_one_read(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    for name in ("fan-taps", "fan-slow", "fan-users"):
        create_topic(servers, name, partitions=2)
    pipeline = documented("fan.yaml").replace("./tables", f"{tmp_path}/tables")
    written = write_pipeline(tmp_path, pipeline)
    for batch in range(2):
        taps = [{"user": f"u{n % 3}", "page": f"p{n % 2}", "ms": n * 100} for n in range(10)]
        send(servers, "fan-taps", [Sent(json.dumps(tap).encode(), partition=batch) for tap in taps])
        totals = run_once(written, spark, broker)
        # Each record is read once, not once for each of four targets.
        assert (totals["everywhere"].rows, totals["everywhere"].written) == (10, 10)
    # The driver dies after the last batch is written and before its checkpoint says so.
    forget_last_commit(tmp_path, "everywhere")
    assert run_once(written, spark, broker)["everywhere"].rows == 10
    slow = [value["ms"] for value in values_of(broker, "fan-slow")]
    assert sorted(slow) == sorted([600, 700, 800, 900] * 2)
    users = [bytes(record.value or b"") for record in records_of(broker, "fan-users")]
    assert sorted(users) == sorted([b"u%d" % (n % 3) for n in range(10)] * 2)
    archive = spark.read.parquet(f"{tmp_path}/tables/fan-archive")
    assert archive.count() == 20
    # Programs that pass over hidden folders see the batches, too.
    assert pq.read_table(f"{tmp_path}/tables/fan-archive").num_rows == 20
    assert {"penstock_batch", "page"} <= set(archive.columns)
    assert DeltaTable(tmp_path / "tables/fan-table").to_pyarrow_table().num_rows == 20


def change(op: str, key: int, name: str | None, at_ms: int, city: str = "Rome") -> Sent:
    row = {"id": key, "name": name, "city": city}
    before, after = (row, None) if op == "d" else (None, row)
    envelope: dict[str, Any] = {"before": before, "after": after, "op": op, "ts_ms": at_ms}
    if op == "u":
        envelope = {"schema": {"type": "struct"}, "payload": envelope}
    return Sent(json.dumps(envelope).encode(), key=b"%d" % key)


def test_the_documented_changes_of_a_database_become_tables(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path
) -> None:
    servers, topic = broker.bootstrap_servers, "shop.public.customers"
    create_topic(servers, topic)
    pipeline = documented("customers.yaml").replace("./tables", f"{tmp_path}/tables")
    written = write_pipeline(tmp_path, pipeline)
    send(servers, topic, [change("r", 1, "Ann", 1000), change("c", 2, "Bob", 2000)])
    run_once(written, spark, broker)
    tombstone = Sent(None, key=b"2")
    # Two changes of a row in the same millisecond: the later one counts.
    send(servers, topic, [change("u", 1, "Anna", 3000), change("u", 1, "Anne", 3000)])
    send(servers, topic, [change("u", 2, "B", 4000), change("d", 2, "Bob", 4000), tombstone])
    run_once(written, spark, broker)

    if is_long():  # in the short form, tests of the tables alone do it
        for sink in ("customers", "history"):
            forget_last_commit(tmp_path, sink)
        assert {total.rows for total in run_once(written, spark, broker).values()} == {5}

    table = DeltaTable(tmp_path / "tables/customers")
    assert table.version() == 2  # created, and a commit for each of two batches
    rows = table.to_pyarrow_table().to_pylist()
    assert [(row["id"], row["name"]) for row in rows] == [(1, "Anne")]
    catalog = SqlCatalog("penstock", uri=f"sqlite:///{tmp_path}/tables/catalog.db")
    history = catalog.load_table(("penstock", "customers-history")).scan().to_arrow().to_pylist()
    catalog.close()

    def ms(name: str, row: dict[str, Any]) -> int | None:
        return None if row[name] is None else round(row[name].timestamp() * 1000)

    versions = [(r["id"], r["name"], ms("valid_from", r), ms("valid_to", r)) for r in history]
    assert sorted(versions) == [
        (1, "Ann", 1000, 3000),
        (1, "Anne", 3000, None),
        (2, "Bob", 2000, 4000),
    ]


REAL_TIME = "org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode"
STREAM = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream"


def test_sources_in_python_still_have_no_real_time_mode(spark: SparkSession) -> None:
    """If this fails, docs/decisions/0071 is out of date."""
    load: Any = spark._jvm.org.apache.spark.util.Utils.classForName  # type: ignore[union-attr]
    modes = [load(REAL_TIME, True, False)]
    streams = [load(f"{STREAM}{kind}", True, False) for kind in ("", "WithTriggerAvailableNow")]
    assert [mode.isAssignableFrom(stream) for mode in modes for stream in streams] == [False] * 2
