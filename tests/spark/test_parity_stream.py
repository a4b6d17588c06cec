"""Streaming queries match Spark's own Kafka connector, micro-batch by micro-batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long
from tests.spark.parity import FORMATS, Refused, Streamed, read_stream, stream_result
from tests.spark.parity_corpus import PER_PARTITION, Corpus, time_ms
from tests.spark.topics import (
    Sent,
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    send,
)

import penstock

pytestmark = pytest.mark.usefixtures("jvm_connector")

TOTAL = sum(PER_PARTITION) + 1
EARLIEST = {"startingOffsets": "earliest"}

# Options, and the number of rows.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "earliest": (EARLIEST, TOTAL),
    "specific": ({"startingOffsets": {"0": 38, "1": -2, "2": -1}}, 3 + 25),
    "startingTimestamp": ({"startingTimestamp": str(time_ms(9))}, 31 + 16 + 1 + 1),
    "maxOffsetsPerTrigger": ({**EARLIEST, "maxOffsetsPerTrigger": "30"}, TOTAL),
    "maxRecordsPerPartition": ({**EARLIEST, "maxRecordsPerPartition": "15"}, TOTAL),
}  # fmt: skip

VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "the default": ({}, 0),
    "minOffsetsPerTrigger and max": (
        {**EARLIEST, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "40"}, TOTAL
    ),
    "minPartitions": ({**EARLIEST, "minPartitions": "5"}, TOTAL),
    "includeHeaders": ({**EARLIEST, "includeHeaders": "true"}, TOTAL),
    "latest": ({"startingOffsets": "latest"}, 0),
    "maxOffsetsPerTrigger, fewer than partitions": (
        {"startingOffsets": {"0": 35, "1": 20, "2": 9}, "maxOffsetsPerTrigger": "2"}, 6 + 5 + 1
    ),
    "maxOffsetsPerTrigger, more than there are": (
        {**EARLIEST, "maxOffsetsPerTrigger": "100000"}, TOTAL
    ),
    "minOffsetsPerTrigger": ({**EARLIEST, "minOffsetsPerTrigger": "5"}, TOTAL),
    "many tasks": ({**EARLIEST, "maxRecordsPerPartition": "7"}, TOTAL),
}  # fmt: skip
SHORT = ("earliest", "maxOffsetsPerTrigger")
CASES = CASES | VARIANTS if is_long() else {name: CASES[name] for name in SHORT}


def stream_options(servers: str, topic: str, options: dict[str, Any]) -> dict[str, str]:
    """A dictionary is the offsets of the topic."""
    texts = {
        name: json.dumps({topic: value}) if isinstance(value, dict) else value
        for name, value in options.items()
    }
    return {"kafka.bootstrap.servers": servers, "subscribe": topic, **texts}


class QueryPair:
    """Two queries, one per format, that drain the same topic repeatedly."""

    def __init__(self, spark: SparkSession, home: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._home = home
        self._options = options

    def drain(self) -> Streamed:
        """The result of both, which must be the same."""
        theirs, ours = (
            read_stream(self._spark, name, self._home / name, self._options) for name in FORMATS
        )
        assert ours == theirs
        return ours

    def fail(self) -> Refused:
        """Both must fail; returns our error."""
        theirs, ours = (
            stream_result(self._spark, name, self._home / name, self._options) for name in FORMATS
        )
        assert isinstance(theirs, Refused), f"the JVM's connector gave {theirs}"
        assert isinstance(ours, Refused), f"ours gave {ours}"
        return ours


@pytest.mark.parametrize("name", CASES)
def test_micro_batches_are_those_of_the_jvm_connector(
    spark: SparkSession, corpus: Corpus, tmp_path: Path, name: str
) -> None:
    options, count = CASES[name]
    pair = QueryPair(spark, tmp_path, stream_options(corpus.servers, corpus.events, options))
    streamed = pair.drain()
    assert len(streamed.rows) == count == sum(streamed.batch_rows)


def test_checkpoint_continues_with_new_records_and_new_partitions(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """New partitions are read from their start, whatever startingOffsets says."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=1)
    send(servers, topic_name, [Sent(b"before")])
    pair = QueryPair(spark, tmp_path, stream_options(servers, topic_name, {}))
    assert pair.drain().rows == []
    send(servers, topic_name, [Sent(b"a"), Sent(b"b")])
    assert [row.value for row in pair.drain().rows] == [b"a", b"b"]
    add_partitions(servers, topic_name, 3)
    send(servers, topic_name, [Sent(b"c", partition=0), Sent(b"d", partition=2)])
    rows = pair.drain().rows
    assert [(row.partition, row.value) for row in rows] == [(0, b"c"), (2, b"d")]


@pytest.mark.skipif(not is_long(), reason="tests/unit/spark/source covers it without a JVM")
def test_pattern_finds_topics_that_are_created_later(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, f"{topic_name}-a")
    send(servers, f"{topic_name}-a", [Sent(b"a")])
    options = {"subscribePattern": f"{topic_name}-.", "startingOffsets": "earliest"}
    pair = QueryPair(spark, tmp_path, {"kafka.bootstrap.servers": servers, **options})
    assert [row.value for row in pair.drain().rows] == [b"a"]
    create_topic(servers, f"{topic_name}-b")
    send(servers, f"{topic_name}-b", [Sent(b"b")])
    assert [(row.topic[-1], row.value) for row in pair.drain().rows] == [("b", b"b")]


@pytest.mark.skipif(not is_long(), reason="tests/unit/spark/source covers it without a JVM")
@pytest.mark.parametrize("must_fail", ["true", "false"])
def test_records_deleted_before_reading_fail_the_query_or_are_skipped(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path, must_fail: str
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    options = {"startingOffsets": "earliest", "failOnDataLoss": must_fail}
    pair = QueryPair(spark, tmp_path, stream_options(servers, topic_name, options))
    send(servers, topic_name, [Sent(b"%d" % number) for number in range(5)])
    assert len(pair.drain().rows) == 5
    send(servers, topic_name, [Sent(b"%d" % number) for number in range(5, 12)])
    delete_records(servers, topic_name, {0: 8})
    if must_fail == "true":
        assert "failOnDataLoss" in pair.fail().message
    else:
        assert [row.offset for row in pair.drain().rows] == [8, 9, 10, 11]


@pytest.mark.skipif(not is_long(), reason="tests/unit/spark/source covers it without a JVM")
def test_recreated_topic_is_data_loss(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """Its offsets restart below those in the checkpoint."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    options = stream_options(servers, topic_name, {"startingOffsets": "earliest"})
    pair = QueryPair(spark, tmp_path, options)
    send(servers, topic_name, [Sent(b"%d" % number) for number in range(5)])
    assert len(pair.drain().rows) == 5
    delete_topic(servers, topic_name)
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"again")])
    assert end_offsets(servers, topic_name, 1) == {0: 1}
    assert "failOnDataLoss" in pair.fail().message
