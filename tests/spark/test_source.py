"""The source in Spark: registration, columns, pruning, pushdown, groups, progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, timestamp_seconds
from pyspark.sql.streaming.query import StreamingQuery
from tests.profile import is_long
from tests.spark.topics import Sent, add_partitions, ask, create_topic, send, wait_until

import penstock
from penstock.client.cluster import ClusterClient
from penstock.spark.source.checkpoint_files import strip_checkpoint
from penstock.spark.source.progress import source_behind
from penstock.spark.source.progress_listener import GroupOffsetsListener

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TIMEOUT_S = 180


@pytest.fixture
def topic(broker: penstock.Broker, topic_name: str) -> str:
    """Two partitions; values 0 to 99, the even ones in partition 0, a second apart."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=2)
    send(servers, topic_name, [numbered(number) for number in range(100)])
    return topic_name


def numbered(number: int) -> Sent:
    return Sent(
        b"%d" % number,
        b"key" if number % 3 else None,
        number % 2,
        1_700_000_000_000 + 1000 * number,
        [("number", b"%d" % number)],
    )


def load(
    spark: SparkSession,
    broker: penstock.Broker,
    topic: str,
    *,
    schema: str | None = None,
    **options: str,
) -> DataFrame:
    reader = spark.read.format("penstock").options(**options)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    reader = reader if schema is None else reader.schema(schema)
    return reader.option("subscribe", topic).load()


def numbers(rows: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in rows.select("value").collect())


def test_columns_have_the_records_values(
    spark: SparkSession, broker: penstock.Broker, topic: str
) -> None:
    rows = load(spark, broker, topic, includeHeaders="true").orderBy("timestamp").collect()
    assert len(rows) == 100
    seventh = rows[7].asDict(recursive=True)
    assert seventh["timestamp"].timestamp() == 1_700_000_007
    del seventh["timestamp"]
    assert seventh == {
        "key": bytearray(b"key"),
        "value": bytearray(b"7"),
        "topic": topic,
        "partition": 1,
        "offset": 3,
        "timestampType": 0,
        "headers": [{"key": "number", "value": bytearray(b"7")}],
    }
    assert rows[9]["key"] is None


def test_schema_prunes_columns(spark: SparkSession, broker: penstock.Broker, topic: str) -> None:
    rows = load(spark, broker, topic, schema="offset bigint, value binary")
    assert rows.columns == ["offset", "value"]
    assert numbers(rows) == list(range(100))


def test_invalid_schema_is_rejected_by_column(
    spark: SparkSession, broker: penstock.Broker, topic: str
) -> None:
    with pytest.raises(PySparkException, match="column 'value' is binary, not string"):
        load(spark, broker, topic, schema="value string").collect()


def test_filters_are_pushed_on_request_only(
    spark: SparkSession, broker: penstock.Broker, topic: str
) -> None:
    def filtered(**options: str) -> DataFrame:
        rows = load(spark, broker, topic, **options)
        late = timestamp_seconds(lit(1_700_000_050))
        return rows.where((col("partition") == 1) & (col("timestamp") >= late))

    expected = [number for number in range(50, 100) if number % 2]
    plain = filtered()
    assert numbers(plain) == expected
    assert plain.rdd.getNumPartitions() == 2
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushed = filtered(filterPushdown="true")
        assert numbers(pushed) == expected
        assert pushed.rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset(PUSHDOWN)


def test_invalid_option_is_named(spark: SparkSession, broker: penstock.Broker, topic: str) -> None:
    with pytest.raises(PySparkException, match="option minPartitions='0': write a whole number"):
        load(spark, broker, topic, minPartitions="0").collect()


def test_unreachable_broker_is_named(spark: SparkSession, topic_name: str) -> None:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", "127.0.0.1:1")
    rows = reader.option("kafka.request.timeout.ms", "500").option("subscribe", topic_name).load()
    with pytest.raises(PySparkException, match=r"cannot reach a broker at 127\.0\.0\.1:1"):
        rows.collect()


# Streams.


class Copy:
    """A query that copies a topic to Parquet each time it is started on its checkpoint."""

    def __init__(self, spark: SparkSession, broker: penstock.Broker, home: Path) -> None:
        self._spark = spark
        self._servers = broker.bootstrap_servers
        self._home = home

    def start(
        self, topic: str, trigger: dict[str, Any], source: str = "penstock", **options: str
    ) -> StreamingQuery:
        reader = self._spark.readStream.format(source).options(**options)
        reader = reader.option("kafka.bootstrap.servers", self._servers).option("subscribe", topic)
        writer = reader.load().select("value").writeStream.format("parquet").trigger(**trigger)
        writer = writer.option("checkpointLocation", str(self._home / "checkpoint"))
        return writer.start(str(self._home / "output"))

    def drain(self, topic: str, source: str = "penstock", **options: str) -> StreamingQuery:
        query = self.start(topic, {"availableNow": True}, source, **options)
        assert query.awaitTermination(TIMEOUT_S)
        return query

    def numbers(self) -> list[int]:
        return numbers(self._spark.read.parquet(str(self._home / "output")))


@pytest.fixture
def copy(spark: SparkSession, broker: penstock.Broker, tmp_path: Path) -> Copy:
    return Copy(spark, broker, tmp_path)


def committed(broker: penstock.Broker, group: str) -> dict[int, int]:
    async def fetch(client: ClusterClient) -> dict[int, int]:
        offsets = await client.groups.fetch_offsets(group)
        return {tp.partition: entry.offset for tp, entry in offsets.items()}

    return ask(broker.bootstrap_servers, fetch)


def test_available_now_leaves_a_group_without_lag(
    copy: Copy, broker: penstock.Broker, topic: str
) -> None:
    group = f"{topic}-group"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    query = copy.drain(topic, **options, **{"kafka.group.id": group})
    assert copy.numbers() == list(range(100))
    assert committed(broker, group) == {0: 50, 1: 50}
    sizes = [
        progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]
    ]
    assert sizes == [30, 30, 30, 10]


def test_progress_gives_the_lag_of_a_query(copy: Copy, topic: str) -> None:
    query = copy.drain(topic, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    first = next(progress for progress in query.recentProgress if progress["numInputRows"])
    behind = source_behind(first["sources"][0])
    assert behind == (35, 35, 35.0, 70)
    last = source_behind(query.recentProgress[-1]["sources"][0])
    assert last is not None
    assert last.total == 0


@pytest.mark.skipif(not is_long(), reason="tests/unit/spark/source plans it")
def test_bytes_limit_a_micro_batch(copy: Copy, topic: str) -> None:
    query = copy.drain(topic, startingOffsets="earliest", maxBytesPerTrigger="1000")
    sizes = [
        progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]
    ]
    assert sum(sizes) == 100
    assert len(sizes) > 2
    assert max(sizes) < 50


def test_listener_publishes_the_end_of_the_last_batch(
    spark: SparkSession, copy: Copy, broker: penstock.Broker, topic: str
) -> None:
    """A single batch is published between two triggers that are far apart."""
    listener = GroupOffsetsListener()
    spark.streams.addListener(listener)
    group = f"{topic}-group"
    options = {"startingOffsets": "earliest", "kafka.group.id": group}
    try:
        query = copy.start(topic, {"processingTime": "1 hour"}, **options)
        wait_until("a batch", lambda: bool(query.lastProgress))
        query.stop()
        wait_until("published", lambda: committed(broker, group) == {0: 50, 1: 50})
    finally:
        spark.streams.removeListener(listener)


@pytest.mark.skipif(not is_long(), reason="tests/unit/spark/source reads the offsets")
def test_query_starts_at_the_offsets_another_query_published(
    spark: SparkSession, broker: penstock.Broker, topic: str, tmp_path: Path
) -> None:
    servers, group = broker.bootstrap_servers, f"{topic}-group"
    named = {"kafka.group.id": group}
    Copy(spark, broker, tmp_path / "one").drain(topic, startingOffsets="earliest", **named)
    send(servers, topic, [numbered(number) for number in range(100, 120)])
    add_partitions(servers, topic, 3)
    send(servers, topic, [Sent(b"120", partition=2)])
    second = Copy(spark, broker, tmp_path / "two")
    second.drain(topic, startingOffsets="group", **named)
    assert second.numbers() == list(range(100, 121))


@pytest.mark.usefixtures("jvm_connector")
def test_query_of_the_jvm_connector_continues_with_ours(
    copy: Copy, broker: penstock.Broker, topic: str
) -> None:
    """The same checkpoint; only the format changes."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    copy.drain(topic, source="kafka", **options)
    send(broker.bootstrap_servers, topic, [numbered(number) for number in range(100, 110)])
    copy.drain(topic, **options)
    assert copy.numbers() == list(range(110))


@pytest.mark.usefixtures("jvm_connector")
@pytest.mark.skipif(not is_long(), reason="tests/unit/spark/source covers the rewrite itself")
def test_stripped_checkpoint_goes_back_to_the_jvm_connector(
    copy: Copy, broker: penstock.Broker, topic: str, tmp_path: Path
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    copy.drain(topic, **options)
    send(broker.bootstrap_servers, topic, [numbered(number) for number in range(100, 110)])
    assert strip_checkpoint(tmp_path / "checkpoint") > 0
    copy.drain(topic, source="kafka", **options)
    assert copy.numbers() == list(range(110))
