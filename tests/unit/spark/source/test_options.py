"""Every option of the source: defaults, values, rejections."""

import pickle

import pytest

from penstock.client.data_calls import IsolationLevel
from penstock.model.ids import TopicPartition
from penstock.spark.errors import BadOption, SparkSourceError
from penstock.spark.source.options import (
    BoundKind,
    OffsetFallback,
    ReadMode,
    SourceOptions,
    parse_source_options,
)

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
TOPIC = {"subscribe": "orders"}


def parse(mode: ReadMode = ReadMode.STREAM, /, **options: str) -> SourceOptions:
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source_options({**SERVERS, **TOPIC, **dotted}, mode)


def test_defaults_are_those_of_sparks_kafka_connector() -> None:
    stream, batch = parse(ReadMode.STREAM), parse(ReadMode.BATCH)
    assert stream.starting.kind is BoundKind.LATEST
    assert batch.starting.kind is BoundKind.EARLIEST
    assert batch.ending.kind is BoundKind.LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.without_match is OffsetFallback.ERROR
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert stream.poll_timeout_ms == 120_000
    assert (stream.offset_retries, stream.offset_retry_interval_ms) == (3, 1_000)
    assert stream.isolation is IsolationLevel.READ_UNCOMMITTED
    assert stream.max_offsets_per_trigger is None
    assert stream.min_partitions is None
    assert stream.max_records_per_partition is None
    assert not stream.publishes_offsets
    assert not stream.pushes_filters


def test_every_option_has_its_effect() -> None:
    options = parse(
        startingOffsets="group",
        startingOffsetsByGroupStrategy="latest",
        startingOffsetsByTimestampStrategy="latest",
        failOnDataLoss="false",
        includeHeaders="true",
        minPartitions="8",
        maxRecordsPerPartition="100",
        maxOffsetsPerTrigger="1000",
        maxBytesPerTrigger="2000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="5m",
        kafkaConsumer__pollTimeoutMs="7",
        fetchOffset__numRetries="0",
        fetchOffset__retryIntervalMs="9",
        groupIdPrefix="mine",
        kafka__group__id="billing",
        kafka__isolation__level="read_committed",
        kafka__fetch__max__bytes="4096",
        filterPushdown="true",
    )
    assert options.starting.kind is BoundKind.GROUP
    assert (options.without_commit, options.without_match) == (
        OffsetFallback.LATEST,
        OffsetFallback.LATEST,
    )
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert (options.min_partitions, options.max_records_per_partition) == (8, 100)
    assert (options.max_offsets_per_trigger, options.max_bytes_per_trigger) == (1000, 2000)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (10, 300_000)
    assert options.poll_timeout_ms == 7
    assert (options.offset_retries, options.offset_retry_interval_ms) == (0, 9)
    assert (options.group, options.publishes_offsets) == ("billing", True)
    assert options.isolation is IsolationLevel.READ_COMMITTED
    assert options.fetch_bytes == 4096
    assert options.pushes_filters


def test_options_can_be_sent_to_executors() -> None:
    options = parse_source_options({**SERVERS, "subscribePattern": "a.*"}, ReadMode.STREAM)
    assert pickle.loads(pickle.dumps(options)) == options


def test_exactly_one_subscription_is_needed() -> None:
    with pytest.raises(SparkSourceError, match="there is: none"):
        parse_source_options(SERVERS, ReadMode.BATCH)
    with pytest.raises(SparkSourceError, match="there is: subscribe and subscribePattern"):
        parse(subscribePattern="a.*")


def test_subscription_names_partitions_topics_or_a_pattern() -> None:
    assigned = parse_source_options({**SERVERS, "assign": '{"a": [1, 0]}'}, ReadMode.BATCH)
    assert assigned.subscription.assigned == (TopicPartition("a", 0), TopicPartition("a", 1))
    named = parse_source_options({**SERVERS, "subscribe": " a, b,a ,"}, ReadMode.BATCH)
    assert named.subscription.topics == ("a", "b")
    matched = parse_source_options({**SERVERS, "subscribePattern": "a.*"}, ReadMode.BATCH)
    assert matched.subscription.pattern is not None


def test_most_specific_start_takes_precedence() -> None:
    times = '{"orders": {"0": 5}}'
    options = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": times}
    assert parse(**options).starting.kind is BoundKind.TIMES
    first = parse(**options, startingTimestamp="17")
    assert (first.starting.kind, first.starting.time_ms) == (BoundKind.TIME, 17)


@pytest.mark.parametrize(
    ("mode", "options", "hint"),
    [
        (ReadMode.BATCH, {"startingOffsets": "latest"}, "cannot start at the end"),
        (ReadMode.BATCH, {"startingOffsets": '{"a": {"0": -1}}'}, "cannot start at the end"),
        (ReadMode.BATCH, {"endingOffsets": "earliest"}, "write one of latest"),
        (ReadMode.BATCH, {"endingOffsets": '{"a": {"0": -2}}'}, "cannot end at the earliest"),
        (ReadMode.STREAM, {"endingOffsets": "latest"}, "not valid in streaming"),
        (ReadMode.STREAM, {"endingTimestamp": "1"}, "not valid in streaming"),
        (
            ReadMode.STREAM,
            {"endingOffsetsByTimestamp": '{"a": {"0": 1}}'},
            "not valid in streaming",
        ),
        (ReadMode.STREAM, {"startingOffsets": "begin"}, "earliest, latest, group, JSON"),
        (ReadMode.STREAM, {"startingOffsets": "group"}, "kafka.group.id"),
        (ReadMode.STREAM, {"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        (ReadMode.STREAM, {"publishGroupOffsets": "true"}, "kafka.group.id"),
        (ReadMode.STREAM, {"minPartitions": "0"}, "whole number, at least 1"),
        (ReadMode.STREAM, {"maxRecordsPerPartition": "x"}, "whole number, at least 1"),
        (ReadMode.STREAM, {"maxBytesPerTrigger": "1g"}, "whole number, at least 1"),
        (
            ReadMode.STREAM,
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "maxOffsetsPerTrigger=8",
        ),
        (ReadMode.STREAM, {"startingOffsetsByTimestampStrategy": "earliest"}, "error, latest"),
        (ReadMode.STREAM, {"kafka.isolation.level": "serializable"}, "read_committed"),
        (ReadMode.STREAM, {"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        (ReadMode.STREAM, {"kafka.enable.auto.commit": "true"}, "checkpoint"),
        (ReadMode.STREAM, {"kafka.key.deserializer": "x"}, "bytes"),
        (ReadMode.STREAM, {"kafka.value.deserializer": "x"}, "bytes"),
        (ReadMode.STREAM, {"kafka.interceptor.classes": "x"}, "Java consumer"),
        (ReadMode.STREAM, {"subscribe": " , "}, "name one or more topics"),
        (ReadMode.STREAM, {"subscribe": "a/b"}, "topic name 'a/b'"),
        (ReadMode.STREAM, {"startingOfsets": "earliest"}, "startingOffsets?"),
    ],
)
def test_invalid_options_are_rejected_by_name(
    mode: ReadMode, options: dict[str, str], hint: str
) -> None:
    with pytest.raises(SparkSourceError) as caught:
        parse_source_options({**SERVERS, **TOPIC, **options}, mode)
    assert hint in str(caught.value)
    assert any(name.lower() in str(caught.value).lower() for name in options)


def test_rejection_survives_pickling() -> None:
    error = BadOption("minPartitions", "0", "write more")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
