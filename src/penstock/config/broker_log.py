"""Broker settings of the log: directories, topic defaults, retention, flushing and cleaning."""

from functools import partial

from penstock.config.check import (
    NOT_EMPTY,
    at_least,
    at_least_or,
    between,
    one_of,
    subset_of,
)
from penstock.config.declare import HOUR_MS, MINUTE_MS, broker, named, scaled_by
from penstock.config.setting import DOUBLE_MAX, LONG_MAX, Setting, SettingKind, UpdateMode
from penstock.config.topic_settings import COMPRESSION_TYPES

_INT, _LONG, _DOUBLE, _BOOLEAN = (
    SettingKind.INT,
    SettingKind.LONG,
    SettingKind.DOUBLE,
    SettingKind.BOOLEAN,
)
# Topic defaults can be changed while the brokers run, for the whole cluster.
_default = partial(broker, update=UpdateMode.CLUSTER_WIDE)

_DIRECTORIES: tuple[Setting, ...] = (
    broker(
        "log.dirs",
        SettingKind.LIST,
        None,
        "Directories that hold the logs.",
        NOT_EMPTY,
        fallbacks=named("log.dir"),
    ),
    broker(
        "log.dir",
        SettingKind.LIST,
        ("/tmp/kafka-logs",),  # noqa: S108 (Kafka's own default)
        "Directory of the logs when log.dirs is not set.",
        NOT_EMPTY,
    ),
)

_SEGMENTS: tuple[Setting, ...] = (
    _default(
        "log.segment.bytes",
        _INT,
        1_073_741_824,
        "Default of the topics' segment.bytes.",
        at_least(14),
    ),
    _default(
        "log.roll.ms",
        _LONG,
        None,
        "Default of the topics' segment.ms.",
        at_least(1),
        fallbacks=scaled_by(HOUR_MS, "log.roll.hours"),
    ),
    broker("log.roll.hours", _INT, 168, "log.roll.ms in hours, when that is unset.", at_least(1)),
    _default(
        "log.roll.jitter.ms",
        _LONG,
        None,
        "Default of the topics' segment.jitter.ms.",
        at_least(0),
        fallbacks=scaled_by(HOUR_MS, "log.roll.jitter.hours"),
    ),
    broker(
        "log.roll.jitter.hours",
        _INT,
        0,
        "log.roll.jitter.ms in hours, when that is unset.",
        at_least(0),
    ),
    _default(
        "log.index.size.max.bytes",
        _INT,
        10_485_760,
        "Default of the topics' segment.index.bytes.",
        at_least(4),
    ),
    _default(
        "log.index.interval.bytes",
        _INT,
        4096,
        "Default of the topics' index.interval.bytes.",
        at_least(0),
    ),
)

_RETENTION: tuple[Setting, ...] = (
    _default(
        "log.retention.ms",
        _LONG,
        None,
        "Default of the topics' retention.ms; wins over log.retention.minutes and .hours.",
        at_least_or(1, -1),
        fallbacks=scaled_by(MINUTE_MS, "log.retention.minutes")
        + scaled_by(HOUR_MS, "log.retention.hours"),
    ),
    broker(
        "log.retention.minutes",
        _INT,
        None,
        "log.retention.ms in minutes, when that is unset; wins over log.retention.hours.",
    ),
    broker("log.retention.hours", _INT, 168, "log.retention.ms in hours, when both are unset."),
    _default("log.retention.bytes", _LONG, -1, "Default of the topics' retention.bytes."),
    broker(
        "log.retention.check.interval.ms",
        _LONG,
        300_000,
        "Time between two looks for segments whose retention is over.",
        at_least(1),
    ),
    _default(
        "log.cleanup.policy",
        SettingKind.LIST,
        ("delete",),
        "Default of the topics' cleanup.policy.",
        subset_of("delete", "compact"),
    ),
)

_FLUSH: tuple[Setting, ...] = (
    _default(
        "log.flush.interval.messages",
        _LONG,
        LONG_MAX,
        "Default of the topics' flush.messages.",
        at_least(1),
    ),
    _default(
        "log.flush.interval.ms",
        _LONG,
        None,
        "Default of the topics' flush.ms.",
        at_least(0),
        fallbacks=named("log.flush.scheduler.interval.ms"),
    ),
    broker(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        "Time between two looks for logs to flush; answers for log.flush.interval.ms when unset.",
        at_least(0),
    ),
    broker(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        60_000,
        "Time between two writes of the recovery points, from which a restart checks the logs.",
        at_least(0),
    ),
    broker(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        60_000,
        "Time between two writes of the logs' start offsets.",
        at_least(0),
    ),
)

_CLEANER: tuple[Setting, ...] = (
    broker("log.cleaner.enable", _BOOLEAN, True, "Whether compacted topics are compacted."),
    _default(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        134_217_728,
        "Memory for the table of keys that a compaction pass fills.",
        at_least(1_048_577),
    ),
    _default(
        "log.cleaner.io.buffer.size",
        _INT,
        524_288,
        "Memory for the bytes a compaction pass reads and writes.",
        at_least(0),
    ),
    _default(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        DOUBLE_MAX,
        "Most bytes a second that compaction reads and writes together.",
    ),
    _default(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "Time the cleaner rests when no log needs compaction.",
        at_least(0),
    ),
    _default(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "Default of the topics' min.cleanable.dirty.ratio.",
        between(0, 1),
    ),
    _default(
        "log.cleaner.delete.retention.ms",
        _LONG,
        86_400_000,
        "Default of the topics' delete.retention.ms.",
        at_least(0),
    ),
    _default(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "Default of the topics' min.compaction.lag.ms.",
        at_least(0),
    ),
    _default(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "Default of the topics' max.compaction.lag.ms.",
        at_least(1),
    ),
)

_MESSAGES: tuple[Setting, ...] = (
    _default(
        "message.max.bytes",
        _INT,
        1_048_588,
        "Default of the topics' max.message.bytes.",
        at_least(0),
    ),
    _default(
        "compression.type",
        SettingKind.STRING,
        "producer",
        "Default of the topics' compression.type.",
        one_of(*COMPRESSION_TYPES),
    ),
    _default(
        "penstock.validate.records",
        SettingKind.BOOLEAN,
        True,
        "Default of the topics' penstock.validate.records.",
        own=True,
    ),
    _default(
        "penstock.max.decompressed.bytes",
        SettingKind.INT,
        33_554_432,
        "Default of the topics' penstock.max.decompressed.bytes.",
        at_least(1),
        own=True,
    ),
    _default(
        "log.message.timestamp.type",
        SettingKind.STRING,
        "CreateTime",
        "Default of the topics' message.timestamp.type.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _default(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "Default of the topics' message.timestamp.before.max.ms.",
        at_least(0),
    ),
    _default(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        "Default of the topics' message.timestamp.after.max.ms.",
        at_least(0),
    ),
)

SETTINGS: tuple[Setting, ...] = (
    *_DIRECTORIES,
    *_SEGMENTS,
    *_RETENTION,
    *_FLUSH,
    *_CLEANER,
    *_MESSAGES,
)
