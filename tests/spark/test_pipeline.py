"""Pipelines on a real Spark and broker: the resulting topics and tables."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import fastavro
import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long
from tests.spark.pipelines import records_of, run, run_once, values_of, write_pipeline
from tests.spark.topics import Sent, ask, create_topic, send

import penstock


def click(number: int) -> bytes:
    at = f"2026-03-02T09:{number % 3:02}:00Z"
    page = "/a} {" if number == 60 else "/a"  # braces inside a string do not end the value
    return json.dumps({"user": f"u{number % 7}", "page": page, "at": at, "ms": number}).encode()


TWO_IN_ONE = click(1) + click(2)  # Spark itself would parse the first and ignore the second


def test_json_flows_through_sql_to_topic_table_and_dead_letters(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    for name in (topic_name, f"{topic_name}.out", f"{topic_name}.dead"):
        create_topic(servers, name, partitions=2)
    good = [Sent(click(n), partition=n % 2, key=b"k") for n in range(100)]
    bad = [
        Sent(b"no JSON", key=b"bad", partition=1, headers=[("trace", b"7")]),
        Sent(b'{"ms": "many"}', partition=1),  # a field of another type
        Sent(TWO_IN_ONE, partition=1),
    ]
    send(servers, topic_name, [*good, *bad])
    written = write_pipeline(
        tmp_path,
        """
sources:
  clicks:
    topic: {topic}
    value: {format: json, schema: "user STRING, page STRING, at TIMESTAMP, ms INT"}
    group: {topic}-group
    dead_letter: {topic}.dead
views:
  slow: SELECT user, ms, _partition FROM clicks WHERE ms >= 50
sinks:
  topic: {from: slow, topic: "{topic}.out", key: user}
  table:
    query: SELECT ms, date(at) AS day FROM clicks
    path: "{folder}/table"
    partition_by: day
""",
        {"topic": topic_name},
    )
    totals = run_once(written, spark, broker)
    assert {name: query_totals.rows for name, query_totals in totals.items()} == {
        **dict.fromkeys(("topic", "table", "clicks.dead-letter"), 103)
    }
    assert {name: query_totals.written for name, query_totals in totals.items()} == {
        "topic": 50,
        "table": 100,
        "clicks.dead-letter": 3,
    }
    assert {total.lag for total in totals.values()} == {0}
    sent = records_of(broker, f"{topic_name}.out")
    assert sorted(json.loads(bytes(record.value or b""))["ms"] for record in sent) == list(
        range(50, 100)
    )
    assert {bytes(record.key or b"") for record in sent} == {b"u%d" % n for n in range(7)}
    assert set(json.loads(bytes(sent[0].value or b""))) == {"user", "ms"}

    table = spark.read.parquet(f"{tmp_path}/table").collect()
    assert sorted(row.ms for row in table) == list(range(100))
    assert {str(row.day) for row in table} == {"2026-03-02"}

    dead = records_of(broker, f"{topic_name}.dead")
    assert {bytes(record.value or b"") for record in dead} == {
        b"no JSON",
        b'{"ms": "many"}',
        TWO_IN_ONE,
    }
    (first,) = [record for record in dead if bytes(record.key or b"") == b"bad"]
    headers = {name: bytes(value or b"") for name, value in first.headers}
    assert headers["trace"] == b"7"
    assert headers["penstock.topic"] == topic_name.encode()
    assert (headers["penstock.partition"], headers["penstock.offset"]) == (b"1", b"50")

    # The next run continues where this one ended, which the group's committed offsets show.
    committed = ask(servers, lambda client: client.groups.fetch_offsets(f"{topic_name}-group"))
    assert {p.partition: committed_offset.offset for p, committed_offset in committed.items()} == {
        0: 50,
        1: 53,
    }
    send(servers, topic_name, [Sent(click(100))])
    assert run_once(written, spark, broker)["table"].rows == 1
    assert spark.read.parquet(f"{tmp_path}/table").count() == 101


@pytest.mark.skipif(not is_long(), reason="test_sink writes aggregates in update mode")
def test_update_mode_writes_changed_aggregates(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    for name in (topic_name, f"{topic_name}.out"):
        create_topic(servers, name)
    send(servers, topic_name, [Sent(click(n)) for n in range(30)])
    written = write_pipeline(
        tmp_path,
        """
sources:
  clicks:
    topic: {topic}
    value: {format: json, schema: "user STRING, page STRING, at TIMESTAMP, ms INT"}
    watermark: {column: at, delay: 1 hour}
sinks:
  minutes:
    query: |
      SELECT window(at, '1 minute').start AS minute, count(*) AS clicks, sum(ms) AS ms
      FROM clicks
      GROUP BY window(at, '1 minute')
    topic: {topic}.out
    key: minute
    mode: update
""",
        {"topic": topic_name},
    )
    assert run_once(written, spark, broker)["minutes"].written == 3
    minutes = [
        {"minute": f"2026-03-02T09:{m:02}:00.000Z", "clicks": 10, "ms": sum(range(m, 30, 3))}
        for m in range(3)
    ]
    assert sorted(values_of(broker, f"{topic_name}.out"), key=lambda v: v["minute"]) == minutes
    send(servers, topic_name, [Sent(click(30))])
    run_once(written, spark, broker)
    again = {"minute": "2026-03-02T09:00:00.000Z", "clicks": 11, "ms": sum(range(0, 31, 3))}
    assert again in values_of(broker, f"{topic_name}.out")


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
    ],
}  # fmt: skip


def avro(number: int) -> dict[str, object]:
    note = None if number % 2 else f"note {number}"
    at = datetime(2026, 3, 2, 9, 0, number, 5000, tzinfo=UTC)
    return {"id": number, "note": note, "at": at, "lines": [{"sku": f"s{number}"}]}


def test_avro_round_trip_is_unchanged(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    for name in (topic_name, f"{topic_name}.out"):
        create_topic(servers, name)
    schema = fastavro.parse_schema(AVRO)
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    values = []
    for number in range(20):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, avro(number))
        values.append(buffer.getvalue())
    bad = [values[0][:-1], values[0] + b"x", b"\xff" * 30]
    send(servers, topic_name, [Sent(value) for value in [*values, *bad, None]])
    written = write_pipeline(
        tmp_path,
        """
sources:
  orders:
    topic: {topic}
    value: {format: avro, schema_file: order.avsc}
    bad_values: skip
sinks:
  out:
    query: SELECT * FROM orders WHERE id IS NOT NULL
    topic: {topic}.out
    value: {format: avro, schema_file: order.avsc}
""",
        {"topic": topic_name},
    )
    run_once(written, spark, broker)
    records = [bytes(record.value or b"") for record in records_of(broker, f"{topic_name}.out")]
    assert sorted(records) == sorted(values)


def test_batch_sources_are_written_once_per_run(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    for name in (topic_name, f"{topic_name}.out"):
        create_topic(servers, name)
    send(servers, topic_name, [Sent(b"1", key=b"a"), Sent(b"2", key=b"b")])
    (tmp_path / "names.csv").write_text("id,name\na,Ann\nb,Bob\n")
    written = write_pipeline(
        tmp_path,
        """
sources:
  numbers: {topic: "{topic}", stream: false}
  names:
    path: "{folder}/names.csv"
    format: csv
    options: {header: true}
sinks:
  out:
    query: SELECT name, value FROM numbers JOIN names ON _key = id
    topic: "{topic}.out"
    value: json
  kept: {from: names, table: known_names, mode: overwrite}
""",
        {"topic": topic_name},
    )
    for _ in range(2):
        assert run_once(written, spark, broker) == {}
    expected = [{"name": "Ann", "value": "1"}, {"name": "Bob", "value": "2"}]
    assert values_of(broker, f"{topic_name}.out") == [expected[0], *expected, expected[1]]
    assert sorted(row.name for row in spark.table("known_names").collect()) == ["Ann", "Bob"]


@pytest.mark.skipif(not is_long(), reason="a variant of a table by path")
def test_catalog_tables_are_written_and_read(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    send(broker.bootstrap_servers, topic_name, [Sent(b"1"), Sent(b"2")])
    written = write_pipeline(
        tmp_path,
        """
sources:
  lines: {topic: "{topic}"}
sinks:
  kept: {query: SELECT value FROM lines, table: lines_of_a_topic}
""",
        {"topic": topic_name},
    )
    run_once(written, spark, broker)
    again = write_pipeline(
        tmp_path,
        """
sources:
  lines: {table: lines_of_a_topic, stream: true}
sinks:
  copied: {from: lines, path: "{folder}/copied", format: json}
""",
    )
    assert run_once(again, spark, broker)["copied"].rows == 2
    assert sorted(r.value for r in spark.read.json(f"{tmp_path}/copied").collect()) == ["1", "2"]


def test_stopped_pipeline_continues_in_the_next_run(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    create_topic(servers, f"{topic_name}.out")
    send(servers, topic_name, [Sent(b"%d" % n) for n in range(10)])
    written = write_pipeline(
        tmp_path,
        """
sources:
  lines: {topic: "{topic}"}
sinks:
  out: {from: lines, topic: "{topic}.out", value: text, key: _offset}
""",
        {"topic": topic_name},
    )
    assert run(written, spark, broker, once=False, stop_when=10)["out"].rows == 10
    send(servers, topic_name, [Sent(b"10")])
    assert run(written, spark, broker, once=False, stop_when=1)["out"].rows == 1
    records = records_of(broker, f"{topic_name}.out")
    assert [bytes(record.value or b"") for record in records] == [b"%d" % n for n in range(11)]
    assert [bytes(record.key or b"") for record in records] == [b"%d" % n for n in range(11)]
