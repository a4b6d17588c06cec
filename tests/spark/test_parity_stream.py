"""Streaming queries give, micro-batch by micro-batch, what Spark's own Kafka connector gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long
from tests.spark.parity import FORMATS, Refused, Streamed, read_stream, stream_outcome
from tests.spark.parity_corpus import PER_PARTITION, Corpus, time_ms
from tests.spark.topics import (
    Sent,
    add_partitions,
    create_topic,
    delete_topic,
    end_offsets,
    send,
    trim,
)

import penstock

pytestmark = pytest.mark.usefixtures("jvm_connector")

TOTAL = sum(PER_PARTITION) + 1
EARLIEST = {"startingOffsets": "earliest"}

# Options, and how many rows they give.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "the default": ({}, 0),
    "earliest": (EARLIEST, TOTAL),
    "specific": ({"startingOffsets": {"0": 38, "1": -2, "2": -1}}, 3 + 25),
    "startingTimestamp": ({"startingTimestamp": str(time_ms(9))}, 31 + 16 + 1 + 1),
    "maxOffsetsPerTrigger": ({**EARLIEST, "maxOffsetsPerTrigger": "30"}, TOTAL),
    "minOffsetsPerTrigger and max": (
        {**EARLIEST, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "40"}, TOTAL
    ),
    "minPartitions": ({**EARLIEST, "minPartitions": "5"}, TOTAL),
    "maxRecordsPerPartition": ({**EARLIEST, "maxRecordsPerPartition": "15"}, TOTAL),
    "includeHeaders": ({**EARLIEST, "includeHeaders": "true"}, TOTAL),
}  # fmt: skip

VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
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
if is_long():
    CASES |= VARIANTS


def stream_options(servers: str, topic: str, options: dict[str, Any]) -> dict[str, str]:
    """A dictionary stands for the offsets of the topic."""
    texts = {
        name: json.dumps({topic: each}) if isinstance(each, dict) else each
        for name, each in options.items()
    }
    return {"kafka.bootstrap.servers": servers, "subscribe": topic, **texts}


class Twins:
    """Two queries, one of each format, that drain the same topic from time to time."""

    def __init__(self, spark: SparkSession, home: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._home = home
        self._options = options

    def drain(self) -> Streamed:
        """What both gave, which must be the same."""
        theirs, ours = (
            read_stream(self._spark, name, self._home / name, self._options) for name in FORMATS
        )
        assert ours == theirs
        return ours

    def fail(self) -> Refused:
        """Both must; what ours said."""
        theirs, ours = (
            stream_outcome(self._spark, name, self._home / name, self._options) for name in FORMATS
        )
        assert isinstance(theirs, Refused), f"the JVM's connector gave {theirs}"
        assert isinstance(ours, Refused), f"ours gave {ours}"
        return ours


@pytest.mark.parametrize("name", CASES)
def test_micro_batches_are_those_of_the_jvm_connector(
    spark: SparkSession, corpus: Corpus, tmp_path: Path, name: str
) -> None:
    options, count = CASES[name]
    asked = stream_options(corpus.servers, corpus.events, options)
    found = Twins(spark, tmp_path, asked).drain()
    assert len(found.rows) == count == sum(found.batch_rows)


def test_a_checkpoint_goes_on_with_what_has_come_and_with_new_partitions(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """New partitions are read from their beginning, whatever the start was."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=1)
    send(servers, topic_name, [Sent(b"before")])
    twins = Twins(spark, tmp_path, stream_options(servers, topic_name, {}))
    assert twins.drain().rows == []
    send(servers, topic_name, [Sent(b"a"), Sent(b"b")])
    assert [row.value for row in twins.drain().rows] == [b"a", b"b"]
    add_partitions(servers, topic_name, 3)
    send(servers, topic_name, [Sent(b"c", partition=0), Sent(b"d", partition=2)])
    found = twins.drain().rows
    assert [(row.partition, row.value) for row in found] == [(0, b"c"), (2, b"d")]


def test_a_pattern_finds_topics_that_come_later(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, f"{topic_name}-a")
    send(servers, f"{topic_name}-a", [Sent(b"a")])
    options = {"subscribePattern": f"{topic_name}-.", "startingOffsets": "earliest"}
    twins = Twins(spark, tmp_path, {"kafka.bootstrap.servers": servers, **options})
    assert [row.value for row in twins.drain().rows] == [b"a"]
    create_topic(servers, f"{topic_name}-b")
    send(servers, f"{topic_name}-b", [Sent(b"b")])
    assert [(row.topic[-1], row.value) for row in twins.drain().rows] == [("b", b"b")]


@pytest.mark.parametrize("must_fail", ["true", "false"])
def test_records_gone_before_they_were_read_fail_the_query_or_are_skipped(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path, must_fail: str
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    options = {"startingOffsets": "earliest", "failOnDataLoss": must_fail}
    twins = Twins(spark, tmp_path, stream_options(servers, topic_name, options))
    send(servers, topic_name, [Sent(b"%d" % number) for number in range(5)])
    assert len(twins.drain().rows) == 5
    send(servers, topic_name, [Sent(b"%d" % number) for number in range(5, 12)])
    trim(servers, topic_name, {0: 8})
    if must_fail == "true":
        assert "failOnDataLoss" in twins.fail().said
    else:
        assert [row.offset for row in twins.drain().rows] == [8, 9, 10, 11]


def test_a_topic_made_anew_is_data_loss(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """Its offsets begin again below those that the checkpoint holds."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    options = stream_options(servers, topic_name, {"startingOffsets": "earliest"})
    twins = Twins(spark, tmp_path, options)
    send(servers, topic_name, [Sent(b"%d" % number) for number in range(5)])
    assert len(twins.drain().rows) == 5
    delete_topic(servers, topic_name)
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"anew")])
    assert end_offsets(servers, topic_name, 1) == {0: 1}
    assert "failOnDataLoss" in twins.fail().said
