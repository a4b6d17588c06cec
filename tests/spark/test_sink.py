"""The sink, batch and streaming: what the topics hold afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiokafka.partitioner import murmur2  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.profile import is_long
from tests.spark.topics import create_topic
from tests.spark.written import read_batches, read_codecs, read_records

import penstock
from penstock.protocol.compression import Codec
from penstock.spark.sink.null_headers import fill_null_headers
from penstock.spark.sink.update_mode import write_updates

QUERY_TIMEOUT_S = 180
PARTITIONS = 4


def save(rows: DataFrame, broker: penstock.Broker, **options: str) -> None:
    all_options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    rows.write.format("penstock").options(**all_options).mode("append").save()


@pytest.mark.quick
def test_rows_are_written_to_the_partitions_of_their_keys(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, partitions=PARTITIONS)
    save(
        spark.sql(
            "SELECT 'key-' || id % 50 AS key, 'value ' || id AS value,"
            " array(named_struct('key', 'n', 'value', cast('' || id AS binary))) AS headers"
            " FROM range(3000)"
        ),
        broker,
        topic=topic_name,
    )
    by_partition = read_records(broker.bootstrap_servers, topic_name)
    records = [record for partition in by_partition.values() for record in partition]
    values = sorted(int(bytes(record.value or b"").split()[1]) for record in records)
    assert values == list(range(3000))
    for number, partition in by_partition.items():
        keys = {bytes(record.key or b"") for record in partition}
        assert {(murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys} == {number}
        assert all(len(record.headers) == 1 for record in partition)


def test_rows_of_a_task_keep_their_order_in_a_partition(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    """Small batches, so that many are in flight."""
    create_topic(broker.bootstrap_servers, topic_name, partitions=2)
    rows = spark.range(20_000).selectExpr(
        "cast(id % 2 AS int) AS partition", "cast(id AS string) AS value"
    )
    options = {"kafka.batch.size": "2000", "kafka.buffer.memory": "50000"}
    save(rows.coalesce(1), broker, topic=topic_name, **options)
    for number, records in read_records(broker.bootstrap_servers, topic_name).items():
        assert [int(record.value or b"") for record in records] == list(range(number, 20_000, 2))
    batches = read_batches(broker.bootstrap_servers, topic_name)
    assert all(len(batch) >= 20 for batch in batches.values())
    assert all(len(batch) <= 2000 for partition in batches.values() for batch in partition)


def test_rows_without_keys_reach_more_than_one_partition(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, partitions=PARTITIONS)
    rows = spark.range(60_000).selectExpr("cast(id AS string) AS value")
    save(rows, broker, topic=topic_name)
    by_partition = read_records(broker.bootstrap_servers, topic_name)
    assert sum(map(len, by_partition.values())) == 60_000
    assert all(by_partition.values())


@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Codec])
def test_batches_are_compressed_with_the_requested_codec(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, codec: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    rows = spark.range(500).selectExpr("repeat('v' || id, 20) AS value").coalesce(1)
    save(rows, broker, topic=topic_name, **{"kafka.compression.type": codec})
    assert read_codecs(broker.bootstrap_servers, topic_name) == {Codec[codec.upper()]}
    (records,) = read_records(broker.bootstrap_servers, topic_name).values()
    assert [record.value for record in records] == [f"v{n}".encode() * 20 for n in range(500)]


def test_missing_topic_is_created_automatically(
    spark: SparkSession, penstock_broker: penstock.Broker, topic_name: str
) -> None:
    save(spark.sql("SELECT 'v' AS value"), penstock_broker, topic=topic_name)
    by_partition = read_records(penstock_broker.bootstrap_servers, topic_name)
    assert [record.value for records in by_partition.values() for record in records] == [b"v"]


REJECTED = {
    "overwrite": ("SELECT 'v' AS value", {"mode": "overwrite"}, "only ever appended to"),
    "no value": ("SELECT 'k' AS key", {}, "needs a column `value`"),
    "nonexistent partition": (
        "SELECT 'v' AS value, 7 AS partition",
        {},
        "has the partitions 0 to 0",
    ),
    "negative partition": ("SELECT 'v' AS value, -1 AS partition", {}, "has -1, topic"),
    "nonexistent topic": (
        "SELECT 'v' AS value",
        {"topic": "missing-topic", "kafka.max.block.ms": "200"},
        "penstock topic create missing-topic",
    ),
    "unreachable broker": (
        "SELECT 'v' AS value",
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.request.timeout.ms": "500",
            "kafka.delivery.timeout.ms": "3600000",  # must not delay the error
        },
        "cannot reach a broker at 127.0.0.1:1",
    ),
    "value larger than max.message.bytes": (
        "SELECT repeat('v', 2000000) AS value",
        {},
        "max.message.bytes",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_write_says_what_to_do(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, name: str
) -> None:
    sql, extra, message = REJECTED[name]
    options: dict[str, str] = {"topic": create_topic(broker.bootstrap_servers, topic_name), **extra}
    mode = options.pop("mode", "append")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    with pytest.raises(PySparkException) as caught:
        spark.sql(sql).write.format("penstock").options(**options).mode(mode).save()
    assert message in str(caught.value)
    assert read_records(broker.bootstrap_servers, topic_name) == {0: []}


# Streaming, from files, so that only the sink is ours.


@pytest.fixture
def lines_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def put_lines(folder: Path, name: str, lines: list[Mapping[str, object]]) -> None:
    hidden = folder / f".{name}"
    hidden.write_text("".join(json.dumps(line) + "\n" for line in lines))
    hidden.rename(folder / name)


def drain(rows: DataFrame, broker: penstock.Broker, home: Path, mode: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    writer = rows.writeStream.option("checkpointLocation", str(home / "checkpoint"))
    writer = writer.outputMode(mode).trigger(availableNow=True)
    if mode == "update":
        query = write_updates(writer, options).start()
    else:
        query = writer.format("penstock").options(**options).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)


def test_stream_writes_each_micro_batch_and_resumes_from_its_checkpoint(
    spark: SparkSession,
    broker: penstock.Broker,
    topic_name: str,
    tmp_path: Path,
    lines_folder: Path,
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, partitions=2)
    lines = spark.readStream.schema("key STRING, value STRING").json(str(lines_folder))
    for run in range(2):
        put_lines(
            lines_folder, f"{run}.json", [{"key": f"{run}", "value": f"{n}"} for n in range(9)]
        )
        drain(lines, broker, tmp_path, "append", topic_name)
    by_partition = read_records(broker.bootstrap_servers, topic_name)
    records = [
        (record.key, record.value) for partition in by_partition.values() for record in partition
    ]
    assert sorted(records) == sorted(
        (f"{run}".encode(), f"{n}".encode()) for run in range(2) for n in range(9)
    )


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_aggregate_is_written_in_every_output_mode(
    spark: SparkSession,
    broker: penstock.Broker,
    topic_name: str,
    tmp_path: Path,
    lines_folder: Path,
    mode: str,
) -> None:
    """The last value of each key is its count; with `complete`, each run writes all of them."""
    create_topic(broker.bootstrap_servers, topic_name)
    lines = spark.readStream.schema("key STRING").json(str(lines_folder))
    counts = lines.groupBy("key").count().selectExpr("key", "cast(count AS string) AS value")
    for run, keys in enumerate(["ab", "bc"]):
        put_lines(lines_folder, f"{run}.json", [{"key": key} for key in keys])
        drain(counts, broker, tmp_path, mode, topic_name)
    (records,) = read_records(broker.bootstrap_servers, topic_name).values()
    written = [(str(record.key, "utf-8"), int(record.value or b"")) for record in records]  # type: ignore[arg-type]
    assert dict(written) == {"a": 1, "b": 2, "c": 1}
    assert len(written) == {"update": 4, "complete": 5}[mode]


@pytest.mark.skipif(not is_long(), reason="test_exactly_once_writes commits by these reports")
def test_driver_receives_a_report_from_each_task(
    spark: SparkSession,
    broker: penstock.Broker,
    topic_name: str,
    tmp_path: Path,
    lines_folder: Path,
) -> None:
    """Each report has what a commit of all tasks needs: query, batch, task, attempt, and end
    offsets. With at-least-once, not committing leaves nothing behind."""
    from pyspark.sql.datasource import DataSource

    from penstock.spark.sink.stream_writer import PenstockStreamWriter

    file = tmp_path / "reports.json"

    class RecordingWriter(PenstockStreamWriter):
        def commit(self, messages, batchId) -> None:  # type: ignore[no-untyped-def] # noqa: N803
            reports = [
                vars(message) | {"end_offsets": list(message.end_offsets.items())}
                for message in messages
            ]
            file.write_text(json.dumps({"batch": batchId, "reports": reports}))

    class RecordingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "recording"

        def streamWriter(self, schema, overwrite):  # type: ignore[no-untyped-def] # noqa: N802
            return RecordingWriter(self.options, schema, overwrite)

    spark.dataSource.register(RecordingSource)
    create_topic(broker.bootstrap_servers, topic_name)
    put_lines(lines_folder, "0.json", [{"value": f"{n}"} for n in range(5)])
    lines = spark.readStream.schema("value STRING").json(str(lines_folder))
    query = (
        lines.writeStream.format("recording")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic_name)
        .option("delivery", "at-least-once")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert json.loads(file.read_text()) == {
        "batch": 0,
        "reports": [
            {
                "query_id": query.id,
                "batch_id": 0,
                "task": 0,
                "attempt": 0,
                "rows": 5,
                "end_offsets": [[[topic_name, 0], 5]],
                "prepared": None,
                "run": query.runId,
                "plan": None,
            }
        ],
    }


def test_null_headers_become_empty_before_they_go_to_python(spark: SparkSession) -> None:
    """Spark takes time quadratic in the batch for null arrays, and none for empty ones."""
    headers = "array<struct<key:string,value:binary>>"
    rows = spark.sql(f"SELECT 'a' AS value, CAST(NULL AS {headers}) AS headers")
    assert [row.headers for row in fill_null_headers(rows).collect()] == [[]]
    given = spark.sql("SELECT array(struct('h' AS key, CAST('x' AS binary) AS value)) AS headers")
    assert fill_null_headers(given).collect() == given.collect()
    for other in ("SELECT 'a' AS value", "SELECT 1 AS headers"):
        assert fill_null_headers(spark.sql(other)).collect() == spark.sql(other).collect()
