"""What a user asks of the source: every option of Spark's Kafka connector and ours, as one value.

Asks no cluster. Invariant: options that parse can be carried out, unless the cluster says no.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.client.data_calls import IsolationLevel
from penstock.model.ids import TopicPartition, check_topic_name
from penstock.spark.connect.connections import CLIENT_OPTIONS, ClientSettings, client_settings
from penstock.spark.errors import BadOption, SparkSourceError
from penstock.spark.option_values import RawOptions, pick
from penstock.spark.source.offset_json import (
    EARLIEST,
    LATEST,
    Offsets,
    parse_assign,
    parse_offsets,
    parse_times,
)
from penstock.spark.source.topic_pattern import compile_pattern

_MIB = 1024 * 1024
_MOST_FETCH_BYTES = 512 * _MIB  # a reply that a client takes

# What a client may not be told, since the source decides it itself.
_REFUSED = {
    "auto.offset.reset": "say where to begin with startingOffsets",
    "key.deserializer": "keys come as bytes; decode the column instead",
    "value.deserializer": "values come as bytes; decode the column instead",
    "enable.auto.commit": "offsets live in Spark's checkpoint; kafka.group.id publishes them",
    "interceptor.classes": "records do not pass through a Java consumer",
}

_OWN_OPTIONS = (
    *("assign", "subscribe", "subscribePattern"),
    *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
    *("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
    *("startingOffsetsByTimestampStrategy", "startingOffsetsByGroupStrategy"),
    *("failOnDataLoss", "includeHeaders", "groupIdPrefix", "minPartitions"),
    *("maxRecordsPerPartition", "maxOffsetsPerTrigger", "maxBytesPerTrigger"),
    *("minOffsetsPerTrigger", "maxTriggerDelay", "kafkaConsumer.pollTimeoutMs"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("publishGroupOffsets", "filterPushdown", "history"),
)
_OF_CLIENT = (
    *("group.id", "isolation.level", "max.partition.fetch.bytes", "fetch.max.bytes"),
    *CLIENT_OPTIONS,
)


class ReadMode(enum.Enum):
    BATCH = "batch queries"
    STREAM = "streaming queries"


class BoundKind(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"  # where a consumer group has come to
    OFFSETS = "offsets"  # of each partition: a number, EARLIEST or LATEST
    TIMES = "times"  # of each partition: the first record that is not older
    TIME = "time"  # one for all partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeBound:
    """Where reading begins or ends, as it was asked for."""

    kind: BoundKind
    option: str  # its name, for messages
    per_partition: Offsets = field(default_factory=dict)
    time_ms: int = -1


class OffsetFallback(enum.Enum):
    """Where a partition begins that what was asked for says nothing about."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


class TopicSubscription(NamedTuple):
    """One of the three is given."""

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    client: ClientSettings
    subscription: TopicSubscription
    starting: RangeBound
    ending: RangeBound
    without_match: OffsetFallback  # no record is as late as the time asked for
    without_commit: OffsetFallback  # the group has committed nothing
    fail_on_data_loss: bool
    include_headers: bool
    isolation: IsolationLevel
    group: str | None
    publishes_offsets: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    poll_timeout_ms: int  # how long a task waits for records that ought to be there
    offset_retries: int
    offset_retry_interval_ms: int
    fetch_bytes: int
    pushes_filters: bool
    history: str | None = None  # a folder of tables that hold what topics have deleted


def parse_source_options(options: Mapping[str, str], mode: ReadMode) -> SourceOptions:
    given = RawOptions(options)
    _check_refused(given)
    given.reject_near_misses(_OWN_OPTIONS, _OF_CLIENT)
    group = given.find_kafka("group.id") or None
    starting = _starting(given, mode)
    if starting.kind is BoundKind.GROUP and group is None:
        raise BadOption("startingOffsets", "group", "say which with option kafka.group.id")
    fallbacks = {each.value: each for each in OffsetFallback}
    without_earliest = {name: fallbacks[name] for name in ("error", "latest")}
    parsed = SourceOptions(
        client=client_settings(options),
        subscription=_subscription(given),
        starting=starting,
        ending=_ending(given, mode),
        without_match=given.choice(
            "startingOffsetsByTimestampStrategy", without_earliest, OffsetFallback.ERROR
        ),
        without_commit=given.choice(
            "startingOffsetsByGroupStrategy", fallbacks, OffsetFallback.EARLIEST
        ),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        isolation=_isolation(given),
        group=group,
        publishes_offsets=given.flag("publishGroupOffsets", group is not None),
        min_partitions=given.positive("minPartitions"),
        max_records_per_partition=given.positive("maxRecordsPerPartition"),
        max_offsets_per_trigger=given.positive("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=given.positive("maxBytesPerTrigger"),
        min_offsets_per_trigger=given.positive("minOffsetsPerTrigger"),
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", 15 * 60_000),
        poll_timeout_ms=given.positive("kafkaConsumer.pollTimeoutMs") or 120_000,
        offset_retries=given.natural("fetchOffset.numRetries", 3),
        offset_retry_interval_ms=given.natural("fetchOffset.retryIntervalMs", 1_000),
        fetch_bytes=_fetch_bytes(given),
        pushes_filters=given.flag("filterPushdown", False),
        history=given.find("history") or None,
    )
    _check_together(parsed)
    return parsed


def _check_refused(given: RawOptions) -> None:
    for name, what_next in _REFUSED.items():
        value = given.find_kafka(name)
        if value is not None:
            raise BadOption(f"kafka.{name}", value, f"not for a source: {what_next}")


def _check_together(options: SourceOptions) -> None:
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise BadOption(
            "minOffsetsPerTrigger", least, f"it is more than maxOffsetsPerTrigger={most}"
        )
    if options.publishes_offsets and options.group is None:
        raise BadOption("publishGroupOffsets", "true", "say of which group with kafka.group.id")


# What is read.


def _subscription(given: RawOptions) -> TopicSubscription:
    names = ("assign", "subscribe", "subscribePattern")
    found = [(name, text) for name in names if (text := given.find(name)) is not None]
    if len(found) != 1:
        seen = " and ".join(name for name, _ in found) or "none"
        raise SparkSourceError(
            f"say what to read with exactly one of the options {', '.join(names)}; given: {seen}"
        )
    ((name, text),) = found
    if name == "assign":
        return TopicSubscription(assigned=parse_assign(name, text))
    if name == "subscribe":
        return TopicSubscription(topics=_topics(text))
    return TopicSubscription(pattern=compile_pattern(name, text))


def _topics(text: str) -> tuple[str, ...]:
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadOption("subscribe", text, "name one or more topics, with commas between")
    try:
        return tuple(check_topic_name(name) for name in names)
    except ValueError as error:
        raise BadOption("subscribe", text, str(error)) from None


# From where, and to where.


def _starting(given: RawOptions, mode: ReadMode) -> RangeBound:
    words = {kind.value: kind for kind in (BoundKind.EARLIEST, BoundKind.LATEST, BoundKind.GROUP)}
    default = BoundKind.LATEST if mode is ReadMode.STREAM else BoundKind.EARLIEST
    bound = _bound(given, "starting", words, default)
    if mode is ReadMode.BATCH and (
        bound.kind is BoundKind.LATEST or LATEST in bound.per_partition.values()
    ):
        raise BadOption(bound.option, "latest", "a batch query cannot begin at the end of the log")
    return bound


def _ending(given: RawOptions, mode: ReadMode) -> RangeBound:
    bound = _bound(given, "ending", {BoundKind.LATEST.value: BoundKind.LATEST}, BoundKind.LATEST)
    is_given = given.find(bound.option) is not None
    if mode is ReadMode.STREAM and is_given:
        raise SparkSourceError(
            f"option {bound.option} is not valid in streaming queries: they have no end; "
            "use spark.read, or the trigger availableNow"
        )
    if EARLIEST in bound.per_partition.values() and bound.kind is BoundKind.OFFSETS:
        raise BadOption(bound.option, EARLIEST, "a query cannot end at the earliest offset")
    return bound


def _bound(
    given: RawOptions, edge: str, words: Mapping[str, BoundKind], default: BoundKind
) -> RangeBound:
    """The most exact option that is given: a time, times, offsets."""
    option = f"{edge}Timestamp"
    if (text := given.find(option)) is not None:
        return RangeBound(kind=BoundKind.TIME, option=option, time_ms=_time_ms(option, text))
    option = f"{edge}OffsetsByTimestamp"
    if (text := given.find(option)) is not None:
        return RangeBound(
            kind=BoundKind.TIMES, option=option, per_partition=parse_times(option, text)
        )
    option = f"{edge}Offsets"
    text = given.find(option)
    if text is not None and text.startswith("{"):
        offsets = parse_offsets(option, text)
        return RangeBound(kind=BoundKind.OFFSETS, option=option, per_partition=offsets)
    kind = default if text is None else _word(option, text, words)
    return RangeBound(kind=kind, option=option)


def _word(option: str, text: str, words: Mapping[str, BoundKind]) -> BoundKind:
    try:
        return pick(option, text, words)
    except BadOption:
        allowed = ", ".join([*words, 'JSON such as {"topic": {"0": 23}}'])
        raise BadOption(option, text, f"write one of {allowed}") from None


def _time_ms(option: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise BadOption(option, text, "write milliseconds since 1970, for example 1700000000000")
    return int(text)


# How it is read.


def _isolation(given: RawOptions) -> IsolationLevel:
    text = given.find_kafka("isolation.level")
    words = {each.name.lower(): each for each in IsolationLevel}
    return (
        IsolationLevel.READ_UNCOMMITTED
        if text is None
        else pick("kafka.isolation.level", text, words)
    )


def _fetch_bytes(given: RawOptions) -> int:
    """Larger than Kafka's 1 MiB: a task reads one partition and asks for nothing else."""
    of_partition = given.positive_kafka("max.partition.fetch.bytes", 8 * _MIB)
    return min(of_partition, given.positive_kafka("fetch.max.bytes", 50 * _MIB), _MOST_FETCH_BYTES)
