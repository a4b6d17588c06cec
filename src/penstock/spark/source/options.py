"""The source's options, parsed: those of Spark's Kafka connector and our own.

Does not contact the cluster. Invariant: options that parse are consistent; only the cluster can
still reject them.
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
# Larger than Kafka's 1 MiB, because a task fetches a single partition.
DEFAULT_FETCH_BYTES = 8 * _MIB
DEFAULT_POLL_TIMEOUT_MS = 120_000
_MAX_FETCH_BYTES = 512 * _MIB  # the largest response that a client accepts

# Client configs that the source controls itself.
_UNSUPPORTED = {
    "auto.offset.reset": "set startingOffsets instead",
    "key.deserializer": "keys come as bytes; decode the column instead",
    "value.deserializer": "values come as bytes; decode the column instead",
    "enable.auto.commit": "offsets live in Spark's checkpoint; kafka.group.id publishes them",
    "interceptor.classes": "records do not pass through a Java consumer",
}

_SOURCE_OPTIONS = (
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
_KAFKA_OPTIONS = (
    *("group.id", "isolation.level", "max.partition.fetch.bytes", "fetch.max.bytes"),
    *CLIENT_OPTIONS,
)


class ReadMode(enum.Enum):
    BATCH = "batch queries"
    STREAM = "streaming queries"


class BoundKind(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"  # the committed offsets of a consumer group
    OFFSETS = "offsets"  # per partition: an offset, EARLIEST or LATEST
    TIMES = "times"  # per partition: the first record that is not older
    TIME = "time"  # one timestamp for all partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeBound:
    """Where reading starts or ends, as the options say."""

    kind: BoundKind
    option: str  # its name, for messages
    per_partition: Offsets = field(default_factory=dict)
    time_ms: int = -1


class OffsetFallback(enum.Enum):
    """Where a partition starts if the requested bound does not apply to it."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


class TopicSubscription(NamedTuple):
    """Exactly one of the three is set."""

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    client: ClientSettings
    subscription: TopicSubscription
    starting: RangeBound
    ending: RangeBound
    without_match: OffsetFallback  # no record is as late as the requested time
    without_commit: OffsetFallback  # the group has no committed offset
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
    poll_timeout_ms: int  # how long a task waits for records that should be there
    offset_retries: int
    offset_retry_interval_ms: int
    fetch_bytes: int
    pushes_filters: bool
    history: str | None = None  # a folder of tables with records that topics have deleted


def parse_source_options(options: Mapping[str, str], mode: ReadMode) -> SourceOptions:
    raw = RawOptions(options)
    _check_supported(raw)
    raw.reject_near_misses(_SOURCE_OPTIONS, _KAFKA_OPTIONS)
    group = raw.find_kafka("group.id") or None
    starting = _starting(raw, mode)
    if starting.kind is BoundKind.GROUP and group is None:
        raise BadOption("startingOffsets", "group", "set the group with option kafka.group.id")
    fallbacks = {fallback.value: fallback for fallback in OffsetFallback}
    without_earliest = {name: fallbacks[name] for name in ("error", "latest")}
    parsed = SourceOptions(
        client=client_settings(options),
        subscription=_subscription(raw),
        starting=starting,
        ending=_ending(raw, mode),
        without_match=raw.choice(
            "startingOffsetsByTimestampStrategy", without_earliest, OffsetFallback.ERROR
        ),
        without_commit=raw.choice(
            "startingOffsetsByGroupStrategy", fallbacks, OffsetFallback.EARLIEST
        ),
        fail_on_data_loss=raw.flag("failOnDataLoss", True),
        include_headers=raw.flag("includeHeaders", False),
        isolation=_isolation(raw),
        group=group,
        publishes_offsets=raw.flag("publishGroupOffsets", group is not None),
        min_partitions=raw.positive("minPartitions"),
        max_records_per_partition=raw.positive("maxRecordsPerPartition"),
        max_offsets_per_trigger=raw.positive("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=raw.positive("maxBytesPerTrigger"),
        min_offsets_per_trigger=raw.positive("minOffsetsPerTrigger"),
        max_trigger_delay_ms=raw.duration_ms("maxTriggerDelay", 15 * 60_000),
        poll_timeout_ms=raw.positive("kafkaConsumer.pollTimeoutMs") or DEFAULT_POLL_TIMEOUT_MS,
        offset_retries=raw.natural("fetchOffset.numRetries", 3),
        offset_retry_interval_ms=raw.natural("fetchOffset.retryIntervalMs", 1_000),
        fetch_bytes=_fetch_bytes(raw),
        pushes_filters=raw.flag("filterPushdown", False),
        history=raw.find("history") or None,
    )
    _check_together(parsed)
    return parsed


def _check_supported(raw: RawOptions) -> None:
    for name, what_next in _UNSUPPORTED.items():
        value = raw.find_kafka(name)
        if value is not None:
            raise BadOption(f"kafka.{name}", value, f"not supported by the source: {what_next}")


def _check_together(options: SourceOptions) -> None:
    minimum, maximum = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if minimum is not None and maximum is not None and minimum > maximum:
        raise BadOption(
            "minOffsetsPerTrigger", minimum, f"more than maxOffsetsPerTrigger={maximum}"
        )
    if options.publishes_offsets and options.group is None:
        raise BadOption("publishGroupOffsets", "true", "set the group with kafka.group.id")


# Topics and partitions.


def _subscription(raw: RawOptions) -> TopicSubscription:
    names = ("assign", "subscribe", "subscribePattern")
    subscriptions = [(name, text) for name in names if (text := raw.find(name)) is not None]
    if len(subscriptions) != 1:
        seen = " and ".join(name for name, _ in subscriptions) or "none"
        raise SparkSourceError(
            f"set exactly one of the options {', '.join(names)}; there is: {seen}"
        )
    ((name, text),) = subscriptions
    if name == "assign":
        return TopicSubscription(assigned=parse_assign(name, text))
    if name == "subscribe":
        return TopicSubscription(topics=_topics(text))
    return TopicSubscription(pattern=compile_pattern(name, text))


def _topics(text: str) -> tuple[str, ...]:
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadOption("subscribe", text, "name one or more topics, separated by commas")
    try:
        return tuple(check_topic_name(name) for name in names)
    except ValueError as error:
        raise BadOption("subscribe", text, str(error)) from None


# Start and end.


def _starting(raw: RawOptions, mode: ReadMode) -> RangeBound:
    words = {kind.value: kind for kind in (BoundKind.EARLIEST, BoundKind.LATEST, BoundKind.GROUP)}
    default = BoundKind.LATEST if mode is ReadMode.STREAM else BoundKind.EARLIEST
    bound = _bound(raw, "starting", words, default)
    if mode is ReadMode.BATCH and (
        bound.kind is BoundKind.LATEST or LATEST in bound.per_partition.values()
    ):
        raise BadOption(bound.option, "latest", "a batch query cannot start at the end of the log")
    return bound


def _ending(raw: RawOptions, mode: ReadMode) -> RangeBound:
    bound = _bound(raw, "ending", {BoundKind.LATEST.value: BoundKind.LATEST}, BoundKind.LATEST)
    is_set = raw.find(bound.option) is not None
    if mode is ReadMode.STREAM and is_set:
        raise SparkSourceError(
            f"option {bound.option} is not valid in streaming queries: they have no end; "
            "use spark.read, or the trigger availableNow"
        )
    if EARLIEST in bound.per_partition.values() and bound.kind is BoundKind.OFFSETS:
        raise BadOption(bound.option, EARLIEST, "a query cannot end at the earliest offset")
    return bound


def _bound(
    raw: RawOptions, edge: str, words: Mapping[str, BoundKind], default: BoundKind
) -> RangeBound:
    """The option with the highest precedence: one time, times per partition, offsets."""
    option = f"{edge}Timestamp"
    if (text := raw.find(option)) is not None:
        return RangeBound(kind=BoundKind.TIME, option=option, time_ms=_time_ms(option, text))
    option = f"{edge}OffsetsByTimestamp"
    if (text := raw.find(option)) is not None:
        return RangeBound(
            kind=BoundKind.TIMES, option=option, per_partition=parse_times(option, text)
        )
    option = f"{edge}Offsets"
    text = raw.find(option)
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


# Fetching.


def _isolation(raw: RawOptions) -> IsolationLevel:
    text = raw.find_kafka("isolation.level")
    words = {level.name.lower(): level for level in IsolationLevel}
    return (
        IsolationLevel.READ_UNCOMMITTED
        if text is None
        else pick("kafka.isolation.level", text, words)
    )


def _fetch_bytes(raw: RawOptions) -> int:
    per_partition = raw.positive_kafka("max.partition.fetch.bytes", DEFAULT_FETCH_BYTES)
    return min(per_partition, raw.positive_kafka("fetch.max.bytes", 50 * _MIB), _MAX_FETCH_BYTES)
