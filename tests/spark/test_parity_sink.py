"""The sink matches Spark's own Kafka connector: records, partitions, offsets, rejections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.profile import is_long
from tests.spark.parity import (
    FAILURES,
    FORMATS,
    JVM,
    OURS,
    QUERY_TIMEOUT_S,
    Read,
    Refused,
    read_batch,
)
from tests.spark.parity_corpus import CODECS, Corpus
from tests.spark.topics import create_topic

import penstock

pytestmark = pytest.mark.usefixtures("jvm_connector")

PARTITIONS = 4
# On a loaded machine a live query can be silent for longer than the default. Spark's own connector
# ignores the option.
PATIENT = {"abandonedAfter": "30m"}
HEADERS = "array<struct<key string, value binary>>"


def frame(spark: SparkSession, sql: str) -> DataFrame:
    return spark.sql(sql).coalesce(1)


ROWS: dict[str, str] = {
    "keys and values as text": "SELECT 'k' || id AS key, 'v' || id AS value FROM range(200)",
    "nulls and nothing": "SELECT * FROM VALUES ('a', NULL), ('b', ''), ('', 'c') AS t(key, value)",
    "a partition for some": (
        "SELECT 'k' || id AS key, 'v' || id AS value,"
        " if(id % 2 = 0, 3, cast(NULL AS int)) AS partition FROM range(20)"
    ),
    "headers": (
        "SELECT 'k' || id AS key, 'v' AS value, if(id % 3 = 0, NULL, array("
        " named_struct('key', 'a', 'value', cast('1' AS binary)),"
        " named_struct('key', 'a', 'value', cast(NULL AS binary)))) AS headers FROM range(9)"
    ),
    "columns in another order, and one more": (
        "SELECT id AS other, cast('v' || id AS binary) AS value, 'k' || id AS key FROM range(9)"
    ),
}

VARIANTS: dict[str, str] = {
    "as bytes": (
        "SELECT cast('k' || id AS binary) AS key, cast('v' AS binary) AS value FROM range(9)"
    ),
    "a column for the partition": (
        "SELECT 'k' AS key, 'v' || id AS value, cast(id % 4 AS int) AS partition FROM range(20)"
    ),
    "a long value": "SELECT 'k' AS key, repeat('long ', 100000) AS value",
    "none": "SELECT 'k' AS key, 'v' AS value FROM range(0)",
}
SHORT = ("keys and values as text", "nulls and nothing", "headers")
ROWS = ROWS | VARIANTS if is_long() else {name: ROWS[name] for name in SHORT}


def save(rows: DataFrame, format_name: str, options: Mapping[str, str]) -> Refused | None:
    try:
        rows.write.format(format_name).options(**PATIENT, **options).mode("append").save()
    except FAILURES as error:
        return Refused(str(error))
    return None


def written(spark: SparkSession, servers: str, topic: str) -> list[tuple[object, ...]]:
    """A topic's records, without topic name and timestamps."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    return [_without_names(row) for row in read_batch(spark, JVM, options)]


def _without_names(row: Read) -> tuple[object, ...]:
    return (row.partition, row.offset, row.key, row.value, row.timestamp_type, row.headers)


def _without_offset(row: tuple[object, ...]) -> tuple[object, ...]:
    """Our writes have a transaction marker between them."""
    return row[:1] + row[2:]


def write_twice(
    spark: SparkSession,
    broker: penstock.Broker,
    topic: str,
    rows: DataFrame,
    all_options: Sequence[Mapping[str, str]] = ({},),
) -> list[list[tuple[object, ...]]]:
    """The same rows through both formats, each to its own topic, once for each of the options."""
    servers = broker.bootstrap_servers
    records = []
    for name in FORMATS:
        create_topic(servers, f"{topic}-{name}", partitions=PARTITIONS)
        target = {"kafka.bootstrap.servers": servers, "topic": f"{topic}-{name}"}
        for options in all_options:
            rejected = save(rows, name, {**target, **options})
            assert rejected is None, rejected
        records.append(written(spark, servers, f"{topic}-{name}"))
    return records


@pytest.mark.parametrize("name", ROWS)
def test_records_are_those_of_the_jvm_connector(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, name: str
) -> None:
    """Records with keys go to the partitions of Java's default partitioner."""
    rows = frame(spark, ROWS[name])
    theirs, ours = write_twice(spark, broker, topic_name, rows)
    assert ours == theirs
    assert len(ours) == rows.count()


def test_every_codec_is_read_by_the_jvm_connector(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    rows = frame(spark, "SELECT 'k' || id AS key, repeat('v' || id, 50) AS value FROM range(100)")
    all_options = [{"kafka.compression.type": codec, "kafka.acks": "all"} for codec in CODECS]
    theirs, ours = write_twice(spark, broker, topic_name, rows, all_options)
    assert [_without_offset(row) for row in ours] == [_without_offset(row) for row in theirs]
    assert len(ours) == 100 * len(CODECS)


def test_rows_without_keys_are_all_written(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    """Their partitions are each client's own choice."""
    rows = frame(spark, "SELECT 'v' || id AS value FROM range(500)")
    theirs, ours = write_twice(spark, broker, topic_name, rows)
    assert sorted(str(row[3]) for row in ours) == sorted(str(row[3]) for row in theirs)
    assert len(ours) == 500


def test_topic_column_applies_unless_the_option_is_set(
    spark: SparkSession, broker: penstock.Broker, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    for format_name in FORMATS:
        names = [f"{topic_name}-{format_name}-{number}" for number in range(2)]
        for name in names:
            create_topic(servers, name)
        rows = frame(
            spark,
            f"SELECT '{topic_name}-{format_name}-' || (id % 2) AS topic,"
            " 'k' AS key, 'v' || id AS value FROM range(10)",
        )
        options = {"kafka.bootstrap.servers": servers}
        assert save(rows, format_name, options) is None
        assert [len(written(spark, servers, name)) for name in names] == [5, 5]
        assert save(rows, format_name, {**options, "topic": names[0]}) is None
        assert [len(written(spark, servers, name)) for name in names] == [15, 5]


# Rows, options, and a word that our error must contain.
REJECTED: dict[str, tuple[str, dict[str, str], str]] = {
    "no topic": ("SELECT 'v' AS value", {}, "topic"),
    "text for headers": (
        "SELECT 'h' AS headers, 'v' AS value", {"topic": "corpus-empty"}, "headers"
    ),
    "a nonexistent partition": (
        "SELECT 99 AS partition, 'v' AS value",
        {"topic": "corpus-empty", "kafka.max.block.ms": "500"},
        "partition",
    ),
    "a serializer": (
        "SELECT 'v' AS value",
        {"topic": "corpus-empty", "kafka.value.serializer": "org.example.Text"},
        "value.serializer",
    ),
}  # fmt: skip

REJECTED_VARIANTS: dict[str, tuple[str, dict[str, str], str]] = {
    "no value": ("SELECT 'k' AS key", {"topic": "corpus-empty"}, "value"),
    "a number for a value": ("SELECT 1 AS value", {"topic": "corpus-empty"}, "value"),
    "a row without a topic": ("SELECT cast(NULL AS string) AS topic, 'v' AS value", {}, "topic"),
    "a nonexistent topic": (
        "SELECT 'v' AS value",
        {"topic": "corpus-missing", "kafka.max.block.ms": "500"},
        "corpus-missing",
    ),
    "a number for a key": ("SELECT 1 AS key, 'v' AS value", {"topic": "corpus-empty"}, "key"),
    "a long for a partition": (
        "SELECT 1L AS partition, 'v' AS value", {"topic": "corpus-empty"}, "partition"
    ),
    "an unknown codec": (
        "SELECT 'v' AS value",
        {"topic": "corpus-empty", "kafka.compression.type": "zip"},
        "compression.type",
    ),
}  # fmt: skip
SHORT_REJECTED = ("no topic", "a nonexistent partition")
REJECTED = (
    REJECTED | REJECTED_VARIANTS if is_long() else {name: REJECTED[name] for name in SHORT_REJECTED}
)


@pytest.mark.parametrize("name", REJECTED)
def test_rejections_are_those_of_the_jvm_connector(
    spark: SparkSession, corpus: Corpus, name: str
) -> None:
    sql, options, word = REJECTED[name]
    all_options = {"kafka.bootstrap.servers": corpus.servers, **options}
    theirs, ours = (save(frame(spark, sql), name, all_options) for name in FORMATS)
    assert theirs is not None, "the JVM connector accepted it"
    assert ours is not None, "ours accepted it"
    assert word in ours.message
    assert written(spark, corpus.servers, corpus.empty) == []


@pytest.mark.parametrize("format_name", FORMATS if is_long() else [OURS])
def test_stream_copies_a_topic(
    spark: SparkSession,
    broker: penstock.Broker,
    corpus: Corpus,
    topic_name: str,
    tmp_path: Path,
    format_name: str,
) -> None:
    """From each format's source to its own sink: keys, values, headers and partitions."""
    create_topic(broker.bootstrap_servers, topic_name, partitions=2)
    options = {"kafka.bootstrap.servers": corpus.servers, "includeHeaders": "true"}
    source = corpus.codec("lz4")
    source_options = {**options, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format(format_name).options(**source_options).load()
    rows = rows.select("key", "value", "headers", "partition")
    writer = rows.writeStream.format(format_name).options(**options).option("topic", topic_name)
    writer = writer.options(**PATIENT).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    copied = written(spark, corpus.servers, topic_name)
    original = written(spark, corpus.servers, source)
    assert [row[2:4] + row[5:] for row in copied] == [row[2:4] + row[5:] for row in original]
    assert len(copied) == 90


# What Spark's connector does with each mode; None: `.save()` without one.
MODES = {
    None: True,
    "error": True,
    "errorifexists": True,
    "default": True,
    "append": True,
    "overwrite": False,
    "ignore": False,
}


@pytest.mark.parametrize("name", FORMATS)
def test_save_without_a_mode_appends_and_the_other_modes_are_alike(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, name: str
) -> None:
    """The topic has records already, so that `errorifexists` could be taken at its word."""
    topic = f"{topic_name}-{name}"
    create_topic(broker.bootstrap_servers, topic)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        producer.send_and_wait(topic, b"there already")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, **PATIENT}
    for mode, is_taken in MODES.items():
        writer = frame(spark, f"SELECT '{mode}' AS value").write.format(name).options(**options)
        if is_taken:
            writer.save(mode=mode)
        else:
            with pytest.raises(FAILURES, match=rf"(?i){mode}"):
                writer.save(mode=mode)
    values = [row[3] for row in written(spark, broker.bootstrap_servers, topic)]
    taken = [str(mode).encode() for mode, is_taken in MODES.items() if is_taken]
    assert values == [b"there already", *taken]


def test_a_mode_that_is_set_before_and_other_formats_stay(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    topic = create_topic(broker.bootstrap_servers, topic_name)
    rows = frame(spark, "SELECT 'v' AS value")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    with pytest.raises(FAILURES, match=r"(?i)ignore"):
        rows.write.mode("ignore").save(format=OURS, **options)
    rows.write.mode("append").save(format=OURS, **options)
    assert len(written(spark, broker.bootstrap_servers, topic)) == 1
    rows.write.parquet(str(tmp_path / "rows"))
    with pytest.raises(FAILURES, match="PATH_ALREADY_EXISTS"):
        rows.write.format("parquet").save(str(tmp_path / "rows"))
