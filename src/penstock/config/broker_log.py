"""Broker settings of the log: directories, topic defaults, retention, flushing and cleaning."""

from functools import partial

from penstock.config.check import (
    NOT_EMPTY,
    at_least,
    at_least_or,
    between,
    between_or,
    one_of,
    subset_of,
)
from penstock.config.declare import HOUR_MS, MINUTE_MS, broker, named, scaled_by
from penstock.config.setting import DOUBLE_MAX, LONG_MAX, NOT_YET, Setting, SettingKind, UpdateMode
from penstock.config.setting import no_effect as nothing
from penstock.config.topic_settings import COMPRESSION_TYPES, ONE_FORMAT

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
    broker(
        "log.dir.failure.timeout.ms",
        _LONG,
        30_000,
        "Time to tell the controller of a failed directory before the broker stops.",
        at_least(1),
        effect=NOT_YET,
    ),
    broker(
        "cordoned.log.dirs",
        SettingKind.LIST,
        (),
        "Log directories that receive no new partitions.",
        effect=NOT_YET,
        update=UpdateMode.PER_BROKER,
    ),
    _default(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        "Workers per log directory that recover logs at start and flush them at stop.",
        at_least(1),
        effect=nothing("one thread recovers all logs, as fast as it can read them"),
    ),
    broker(
        "log.initial.task.delay.ms",
        _LONG,
        30_000,
        "Time after start before retention, flush and checkpoint jobs first run.",
        at_least(0),
        effect=NOT_YET,
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
    _default(
        "log.preallocate",
        _BOOLEAN,
        False,
        "Default of the topics' preallocate.",
        effect=nothing("files grow as they are written"),
    ),
    _default(
        "log.segment.delete.delay.ms",
        _LONG,
        60_000,
        "Default of the topics' file.delete.delay.ms.",
        at_least(0),
        effect=nothing("a file that is being read lives until its last reader is done"),
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
        "log.cleaner.threads",
        _INT,
        1,
        "Workers that compact logs.",
        at_least(0),
        effect=NOT_YET,
    ),
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
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "How full the table of keys may get.",
        effect=NOT_YET,
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
        "compression.gzip.level",
        _INT,
        -1,
        "Default of the topics' compression.gzip.level.",
        between_or(1, 9, -1),
        effect=NOT_YET,
    ),
    _default(
        "compression.lz4.level",
        _INT,
        9,
        "Default of the topics' compression.lz4.level.",
        between(1, 17),
        effect=NOT_YET,
    ),
    _default(
        "compression.zstd.level",
        _INT,
        3,
        "Default of the topics' compression.zstd.level.",
        between(-131_072, 22),
        effect=NOT_YET,
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
    _default(
        "log.message.timestamp.difference.max.ms",
        _LONG,
        LONG_MAX,
        "Default of the topics' message.timestamp.difference.max.ms.",
        at_least(0),
        effect=nothing("use log.message.timestamp.before.max.ms and .after.max.ms"),
    ),
    broker(
        "log.message.format.version",
        SettingKind.STRING,
        "3.0-IV1",
        "Default of the topics' message.format.version.",
        effect=ONE_FORMAT,
    ),
    _default(
        "log.message.downconversion.enable",
        _BOOLEAN,
        True,
        "Default of the topics' message.downconversion.enable.",
        effect=ONE_FORMAT,
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
