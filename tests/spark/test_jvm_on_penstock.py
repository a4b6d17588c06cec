"""Spark's own Kafka connector reads and writes Penstock, without any code of ours in Spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's users know)
from tests.profile import is_long, scaled
from tests.spark.parity import JVM, QUERY_TIMEOUT_S, Read, load, read_batch, read_stream
from tests.spark.topics import Sent, create_topic, end_offsets, send, wait_until

import penstock

pytestmark = pytest.mark.usefixtures("jvm_connector")

PARTITIONS = 3
ROWS = scaled(test=3_000, verify=100_000, release=500_000)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def subscribe(broker: penstock.Broker, topic: str, **more: str) -> dict[str, str]:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return {**servers, "subscribe": topic, "startingOffsets": "earliest", **more}


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    """Rows whose key and value are their number."""
    text = F.col("id").cast("string")
    return spark.range(rows, numPartitions=2).select(text.alias("key"), text.alias("value"))


def write(spark: SparkSession, broker: penstock.Broker, topic: str, rows: int, **more: str) -> None:
    frame = numbers(spark, rows)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, **more}
    frame.write.format(JVM).options(**options).save()


def values(rows: list[Read]) -> list[int]:
    return sorted(int(row.value or b"") for row in rows)


def has_records(servers: str, topic: str, count: int) -> bool:
    """For a topic with one partition."""
    return end_offsets(servers, topic, 1)[0] >= count


def test_jvm_connector_reads_back_its_records_with_each_codec(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, partitions=PARTITIONS)
    for codec in CODECS:
        write(spark, broker, topic_name, ROWS, **{"kafka.compression.type": codec})
    rows = load(spark, JVM, subscribe(broker, topic_name))
    summary = rows.select(
        F.count("value"), F.countDistinct("value"), F.sum(F.col("value").cast("string")),
        F.countDistinct("partition"),
    ).first()  # fmt: skip
    assert summary is not None
    total = len(CODECS) * ROWS
    assert tuple(summary) == (total, ROWS, total * (ROWS - 1) / 2, PARTITIONS)
    ends = end_offsets(broker.bootstrap_servers, topic_name, PARTITIONS)
    assert sum(ends.values()) == total


def test_jvm_connector_reads_headers_timestamps_and_nulls_of_other_clients(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    sent = [
        Sent(b"value", b"key", 0, 1_700_000_000_123, (("a", b"1"), ("a", None), ("", b""))),
        Sent(None, b"key", 0, 1_700_000_000_124),
        Sent(b"", None, 1, 1_700_000_000_125),
    ]
    create_topic(broker.bootstrap_servers, topic_name, partitions=2)
    send(broker.bootstrap_servers, topic_name, sent)
    rows = read_batch(spark, JVM, subscribe(broker, topic_name, includeHeaders="true"))
    contents = [(row.partition, row.offset, row.key, row.value) for row in rows]
    assert contents == [(0, 0, b"key", b"value"), (0, 1, b"key", None), (1, 0, None, b"")]
    assert [row.headers for row in rows] == [(("a", b"1"), ("a", None), ("", b"")), None, None]
    times_ms = [round(row.timestamp.timestamp() * 1000) for row in rows if row.timestamp]
    assert times_ms == [record.timestamp_ms for record in sent]


def test_jvm_stream_drains_a_topic_and_resumes_from_its_checkpoint(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, partitions=PARTITIONS)
    options = subscribe(broker, topic_name, maxOffsetsPerTrigger=str(ROWS // 4))
    write(spark, broker, topic_name, ROWS)
    first = read_stream(spark, JVM, tmp_path / "checkpoint", options)
    assert values(first.rows) == list(range(ROWS))
    assert len(first.batch_rows) >= 4
    write(spark, broker, topic_name, 10)
    again = read_stream(spark, JVM, tmp_path / "checkpoint", options)
    assert values(again.rows) == list(range(10))


@pytest.mark.skipif(not is_long(), reason="the JVM's stream drains a topic in `make test`")
def test_jvm_stream_copies_a_topic_that_is_being_written(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """Continuously from one topic to another: later records are copied, too."""
    servers, copy = broker.bootstrap_servers, f"{topic_name}-copy"
    create_topic(servers, topic_name, partitions=PARTITIONS)
    create_topic(servers, copy, partitions=1)
    source = spark.readStream.format(JVM).options(**subscribe(broker, topic_name)).load()
    writer = source.select("key", "value").writeStream.format(JVM)
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", copy)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for number in range(3):
            written = [Sent(str(number * 100 + index).encode(), b"k") for index in range(100)]
            send(servers, topic_name, written)
            wait_until("copied", partial(has_records, servers, copy, (number + 1) * 100))
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert values(read_batch(spark, JVM, subscribe(broker, copy))) == list(range(300))
