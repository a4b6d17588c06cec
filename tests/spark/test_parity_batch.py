"""Batch queries match Spark's own Kafka connector, option by option."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long
from tests.spark.parity import FORMATS, Read, Refused, both, load, read_batch
from tests.spark.parity_corpus import CODECS, PER_PARTITION, TRIMMED_TO, Corpus, time_ms

pytestmark = pytest.mark.usefixtures("jvm_connector")

TOTAL = sum(PER_PARTITION) + 1
LAST = {"0": -1, "1": -1, "2": -1}
OFFSETS_BY_PARTITION = {"0": 5, "1": 0, "2": -2}

Case = Callable[[Corpus], tuple[dict[str, Any], int]]  # options and the expected number of rows


def events(rows: int, **options: Any) -> Case:
    return lambda corpus: ({"subscribe": corpus.events, **options}, rows)


def offsets(by_partition: Mapping[str, int]) -> Callable[[Corpus], str]:
    return lambda corpus: json.dumps({corpus.events: by_partition})


def at(number: int) -> str:
    return str(time_ms(number))


def since(number: int) -> int:
    """The number of events with this timestamp or a later one."""
    return sum(max(records - number, 0) for records in PER_PARTITION) + 1


# Options that change no row: all in one query, and in the long form one by one.
NEUTRAL: dict[str, dict[str, str]] = {
    "groupIdPrefix": {"groupIdPrefix": "parity"},
    "kafkaConsumer.pollTimeoutMs": {"kafkaConsumer.pollTimeoutMs": "5000"},
    "fetchOffset": {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "5"},
    "kafka.isolation.level": {"kafka.isolation.level": "read_committed"},
    "kafka.fetch sizes": {
        "kafka.max.partition.fetch.bytes": "2000",
        "kafka.fetch.max.bytes": "3000",
        "kafka.max.poll.records": "7",
        "kafka.client.id": "parity",
    },
    "failOnDataLoss off": {"failOnDataLoss": "false"},
}

CASES: dict[str, Case] = {
    "subscribe": events(TOTAL),
    "subscribe, several": lambda corpus: (
        {"subscribe": f"{corpus.events} , {corpus.more},"}, TOTAL + 1
    ),
    "subscribePattern": lambda _: ({"subscribePattern": "corpus-(events|mo.+)"}, TOTAL + 1),
    "assign": lambda corpus: ({"assign": json.dumps({corpus.events: [0, 2]})},
                              PER_PARTITION[0] + PER_PARTITION[2] + 1),
    "starting and ending": events(
        6 + 1 + 10,
        startingOffsets=offsets({"0": 4, "1": 24, "2": -2}),
        endingOffsets=offsets({"0": 10, "1": 25, "2": -1}),
    ),
    "times on both sides": events(3 * 4, startingTimestamp=at(2), endingTimestamp=at(6)),
    "startingOffsetsByTimestamp": events(
        1 + 1 + 10 + 5,
        startingOffsetsByTimestamp=offsets(
            {"0": time_ms(39), "1": time_ms(20), "2": time_ms(0) - 1}
        ),
    ),
    "endingOffsetsByTimestamp": events(
        3 + 25 + 0,
        endingOffsetsByTimestamp=offsets({"0": time_ms(3), "1": time_ms(99), "2": 1}),
    ),
    "minPartitions": events(TOTAL, minPartitions="5"),
    "maxRecordsPerPartition": events(TOTAL, maxRecordsPerPartition="15"),
    "options that change no row": events(
        TOTAL, **{name: value for options in NEUTRAL.values() for name, value in options.items()}
    ),
    "includeHeaders": lambda corpus: ({"subscribe": corpus.headed, "includeHeaders": "true"}, 7),
    "trimmed": lambda corpus: ({"subscribe": corpus.trimmed}, 15),
    "codecs": lambda corpus: (
        {"subscribe": ",".join(map(corpus.codec, CODECS)), "includeHeaders": "true"},
        90 * len(CODECS),
    ),
}  # fmt: skip

VARIANTS: dict[str, Case] = {
    "startingOffsets": events(TOTAL - 5, startingOffsets=offsets(OFFSETS_BY_PARTITION)),
    "endingOffsets": events(13, endingOffsets=offsets({"0": 10, "1": 3, "2": 0})),
    "startingTimestamp": events(since(9), startingTimestamp=at(9)),
    "endingTimestamp": events(10 + 10 + 10, endingTimestamp=at(10)),
    "subscribe to nothing yet": lambda corpus: ({"subscribe": corpus.empty}, 0),
    "subscribePattern that finds none": lambda _: ({"subscribePattern": "corpus$"}, 0),
    "startingOffsets at the end": events(
        0, startingOffsets=offsets({"0": 41, "1": 25, "2": 10})
    ),
    "nothing between": events(
        0,
        startingOffsets=offsets({"0": 4, "1": 4, "2": 4}),
        endingOffsets=offsets({"0": 4, "1": 4, "2": 4}),
    ),
    "startingTimestamp before startingOffsetsByTimestamp": events(
        since(5),
        startingTimestamp=at(5),
        startingOffsetsByTimestamp=offsets({"0": time_ms(1), "1": time_ms(1), "2": time_ms(1)}),
        startingOffsets="earliest",
    ),
    "startingTimestamp too late, latest": events(
        since(20), startingTimestamp=at(20), startingOffsetsByTimestampStrategy="latest"
    ),
    "kafka.group.id": events(TOTAL, **{"kafka.group.id": "parity-batch"}),
    "names in any case": events(TOTAL, FAILONDATALOSS="FALSE", STARTINGOFFSETS="earliest"),
    "options of streams": events(
        TOTAL, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2", maxTriggerDelay="1s"
    ),
    "times of the log": lambda corpus: ({"subscribe": corpus.stamped}, 2),
    "subscribePattern, a part of the name": lambda _: ({"subscribePattern": "s-even"}, TOTAL),
    "assign of two topics": lambda corpus: (
        {"assign": json.dumps({corpus.events: [1], corpus.more: [0]})}, PER_PARTITION[1] + 1
    ),
    "startingOffsets earliest": events(TOTAL, startingOffsets="earliest"),
    "startingOffsets Earliest": events(TOTAL, startingOffsets="EARLIEST"),
    "endingOffsets latest": events(TOTAL, endingOffsets="latest"),
    "endingOffsets -1": events(TOTAL, endingOffsets=offsets(LAST)),
    "startingTimestamp before all": events(TOTAL, startingTimestamp="1"),
    "startingOffsetsByTimestamp before startingOffsets": events(
        since(6),
        startingOffsetsByTimestamp=offsets({"0": time_ms(6), "1": time_ms(6), "2": time_ms(6)}),
        startingOffsets="earliest",
    ),
    "startingOffsetsByTimestampStrategy not needed": events(
        since(5), startingTimestamp=at(5), startingOffsetsByTimestampStrategy="error"
    ),
    "endingTimestamp after all": events(TOTAL, endingTimestamp=at(1000)),
    "endingTimestamp before endingOffsets": events(
        3 * 2, endingTimestamp=at(2), endingOffsets=offsets(LAST)
    ),
    "many tasks": events(TOTAL, minPartitions="7", maxRecordsPerPartition="6"),
    "minPartitions and maxRecordsPerPartition": events(
        TOTAL, minPartitions="4", maxRecordsPerPartition="10"
    ),
    "includeHeaders, other case": lambda corpus: (
        {"subscribe": corpus.headed, "INCLUDEHEADERS": "True"}, 7
    ),
    "headers not requested": lambda corpus: ({"subscribe": corpus.headed}, 7),
    **{name: events(TOTAL, **options) for name, options in NEUTRAL.items()},
    **{
        f"codec {name}": lambda corpus, name=name: (  # type: ignore[misc]
            {"subscribe": corpus.codec(name), "includeHeaders": "true"}, 90
        )
        for name in CODECS
    },
}  # fmt: skip
SHORT = (
    "subscribe", "assign", "starting and ending", "times on both sides", "minPartitions",
    "includeHeaders", "codecs",
)  # fmt: skip
CASES = CASES | VARIANTS if is_long() else {name: CASES[name] for name in SHORT}


def resolve(corpus: Corpus, options: Mapping[str, Any]) -> dict[str, str]:
    """Values that name topics of the corpus are functions of it."""
    resolved = {
        name: value(corpus) if callable(value) else value for name, value in options.items()
    }
    return {"kafka.bootstrap.servers": corpus.servers, **resolved}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_jvm_connector(
    spark: SparkSession, corpus: Corpus, name: str
) -> None:
    options, count = CASES[name](corpus)
    theirs, ours = both(spark, resolve(corpus, options))
    assert not isinstance(theirs, Refused), theirs.message
    assert len(theirs) == count
    assert ours == theirs


def test_rows_of_a_compacted_topic_are_those_of_the_jvm_connector(
    spark: SparkSession, corpus: Corpus
) -> None:
    """All of it, and ranges that start and end in gaps."""
    whole: list[Read] = []
    for start, end in ((0, -1), (1, 50), (3, 57), (10, 12), (59, 60)):
        bounds = {
            "startingOffsets": json.dumps({corpus.compacted: {"0": start}}),
            "endingOffsets": json.dumps({corpus.compacted: {"0": end}}),
        }
        options = resolve(corpus, {"subscribe": corpus.compacted, **bounds})
        theirs, ours = both(spark, options)
        assert ours == theirs
        assert isinstance(theirs, list)
        whole = whole or theirs
    offsets_read = {row.offset for row in whole}
    assert len(whole) < 40
    assert not set(range(3, 20)) <= offsets_read
    assert max(offsets_read) == 59


@pytest.mark.parametrize("headers", ["true", "false"])
def test_columns_are_those_of_the_jvm_connector(
    spark: SparkSession, corpus: Corpus, headers: str
) -> None:
    options = resolve(corpus, {"subscribe": corpus.events, "includeHeaders": headers})
    theirs, ours = (load(spark, name, options).schema for name in FORMATS)
    assert ours == theirs


@pytest.mark.parametrize(
    "limits",
    [{}, {"minPartitions": "2"}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "10"}],
    ids=str,
)
def test_number_of_tasks_is_that_of_the_jvm_connector(
    spark: SparkSession, corpus: Corpus, limits: dict[str, str]
) -> None:
    """With explicit offsets, because the JVM connector counts `earliest` to `latest` as one
    record."""
    bounds = {
        "startingOffsets": offsets({"0": 0, "1": 0, "2": 0}),
        "endingOffsets": offsets(dict(zip("012", PER_PARTITION, strict=True))),
    }
    options = resolve(corpus, {"subscribe": corpus.events, **bounds, **limits})
    theirs, ours = (load(spark, name, options).rdd.getNumPartitions() for name in FORMATS)
    assert ours == theirs


def test_deleted_records_fail_the_query_or_are_skipped(spark: SparkSession, corpus: Corpus) -> None:
    """A start below the log start offset is data loss: an error, or the remaining records."""
    start = json.dumps({corpus.trimmed: {"0": 2, "1": 0, "2": 4}})
    options = resolve(corpus, {"subscribe": corpus.trimmed, "startingOffsets": start})
    for name in FORMATS:
        left = read_batch(spark, name, {**options, "failOnDataLoss": "false"})
        assert [row.offset for row in left if row.partition == 0] == list(range(TRIMMED_TO[0], 20))
        assert len(left) == 15
    theirs, ours = both(spark, options)
    assert isinstance(theirs, Refused)
    assert isinstance(ours, Refused)
    assert "failOnDataLoss" in ours.message


def test_filters_and_aggregates_above_the_source_agree(spark: SparkSession, corpus: Corpus) -> None:
    """Spark may prune columns and push filters; the result stays the same."""
    options = resolve(corpus, {"subscribe": corpus.events})
    results = []
    for name in FORMATS:
        rows = load(spark, name, options)
        rows.createOrReplaceTempView("events")
        result = spark.sql(
            "SELECT partition, count(*), max(offset), min(timestamp), sum(length(value))"
            f" FROM events WHERE offset >= 3 AND timestamp < timestamp_millis({time_ms(20)})"
            " GROUP BY partition ORDER BY partition"
        )
        results.append([tuple(row) for row in result.collect()])
    assert results[0] == results[1]
    assert [row[1] for row in results[0]] == [17, 17, 7]
