"""Topic settings that take effect, each with the broker settings that it falls back to."""

import re

from penstock.config.check import ValueCheck, at_least, between, one_of, subset_of
from penstock.config.declare import HOUR_MS, MINUTE_MS, named, scaled_by, topic
from penstock.config.setting import LONG_MAX, Setting, SettingKind

MAX_DELAY_MS = 10 * 365 * 24 * HOUR_MS  # a longer one is a mistake, perhaps of the unit
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_REPLICAS = ValueCheck(
    allowed="each partition:broker, or * alone",
    accepts=lambda value: (
        value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", part) for part in value)
    ),
)
_GROUPS = ValueCheck(
    allowed="names of letters, digits and ._- that differ",
    accepts=lambda value: (
        len(set(value)) == len(value)
        and all(re.fullmatch(r"[a-zA-Z0-9._-]{1,230}", part) for part in value)
    ),
)

TOPIC_SETTINGS: tuple[Setting, ...] = (
    topic(
        "segment.bytes",
        SettingKind.INT,
        1_073_741_824,
        "Size at which a log closes its current segment file and opens the next.",
        at_least(14),
        synonyms=named("log.segment.bytes"),
    ),
    topic(
        "segment.ms",
        SettingKind.LONG,
        604_800_000,
        "Age at which a segment is closed even if it is not full, so that retention can reach it.",
        at_least(1),
        synonyms=named("log.roll.ms") + scaled_by(HOUR_MS, "log.roll.hours"),
    ),
    topic(
        "segment.jitter.ms",
        SettingKind.LONG,
        0,
        "Largest random time taken off segment.ms, so that logs do not all roll at once.",
        at_least(0),
        synonyms=named("log.roll.jitter.ms") + scaled_by(HOUR_MS, "log.roll.jitter.hours"),
    ),
    topic(
        "segment.index.bytes",
        SettingKind.INT,
        10_485_760,
        "Largest size of a segment's offset index; a full index closes the segment.",
        at_least(4),
        synonyms=named("log.index.size.max.bytes"),
    ),
    topic(
        "index.interval.bytes",
        SettingKind.INT,
        4096,
        "Bytes of log between two entries of the offset index.",
        at_least(0),
        synonyms=named("log.index.interval.bytes"),
    ),
    topic(
        "flush.messages",
        SettingKind.LONG,
        LONG_MAX,
        "Messages after which the log is forced to disk; 1 makes every write durable.",
        at_least(1),
        synonyms=named("log.flush.interval.messages"),
    ),
    topic(
        "flush.ms",
        SettingKind.LONG,
        LONG_MAX,
        "Longest time a message may wait before the log is forced to disk.",
        at_least(0),
        synonyms=named("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    topic(
        "retention.bytes",
        SettingKind.LONG,
        -1,
        "Size of a partition above which its oldest segments are deleted; -1 for no limit.",
        synonyms=named("log.retention.bytes"),
    ),
    topic(
        "retention.ms",
        SettingKind.LONG,
        604_800_000,
        "Age at which segments are deleted; -1 for no limit.",
        at_least(-1),
        synonyms=named("log.retention.ms")
        + scaled_by(MINUTE_MS, "log.retention.minutes")
        + scaled_by(HOUR_MS, "log.retention.hours"),
    ),
    topic(
        "max.message.bytes",
        SettingKind.INT,
        1_048_588,
        "Largest record batch accepted, as it is on disk (after compression).",
        at_least(0),
        synonyms=named("message.max.bytes"),
    ),
    topic(
        "delete.retention.ms",
        SettingKind.LONG,
        86_400_000,
        "Time a delete marker outlives compaction, so that slow readers still see it.",
        at_least(0),
        synonyms=named("log.cleaner.delete.retention.ms"),
    ),
    topic(
        "min.compaction.lag.ms",
        SettingKind.LONG,
        0,
        "Age below which a message is never compacted away.",
        at_least(0),
        synonyms=named("log.cleaner.min.compaction.lag.ms"),
    ),
    topic(
        "max.compaction.lag.ms",
        SettingKind.LONG,
        LONG_MAX,
        "Age at which a message must become eligible for compaction.",
        at_least(1),
        synonyms=named("log.cleaner.max.compaction.lag.ms"),
    ),
    topic(
        "min.cleanable.dirty.ratio",
        SettingKind.DOUBLE,
        0.5,
        "Share of not yet compacted bytes from which a log is worth compacting.",
        between(0, 1),
        synonyms=named("log.cleaner.min.cleanable.ratio"),
    ),
    topic(
        "cleanup.policy",
        SettingKind.LIST,
        ("delete",),
        "How old segments go: delete by age and size, compact by key, or both; empty keeps all.",
        subset_of("delete", "compact"),
        synonyms=named("log.cleanup.policy"),
    ),
    topic(
        "compression.type",
        SettingKind.STRING,
        "producer",
        "Codec that batches are stored with; producer keeps what the producer chose.",
        one_of(*COMPRESSION_TYPES),
        synonyms=named("compression.type"),
    ),
    topic(
        "message.timestamp.type",
        SettingKind.STRING,
        "CreateTime",
        "Whose clock stamps a message: the producer's (CreateTime) or the broker's.",
        one_of("CreateTime", "LogAppendTime"),
        synonyms=named("log.message.timestamp.type"),
    ),
    topic(
        "message.timestamp.before.max.ms",
        SettingKind.LONG,
        LONG_MAX,
        "How far a producer's timestamp may lie in the past before the batch is refused.",
        at_least(0),
        synonyms=named("log.message.timestamp.before.max.ms"),
    ),
    topic(
        "message.timestamp.after.max.ms",
        SettingKind.LONG,
        3_600_000,
        "How far a producer's timestamp may lie in the future before the batch is refused.",
        at_least(0),
        synonyms=named("log.message.timestamp.after.max.ms"),
    ),
    topic(
        "min.insync.replicas",
        SettingKind.INT,
        1,
        "Replicas that must hold a write before acks=all succeeds; with fewer in sync it fails.",
        at_least(1),
        synonyms=named("min.insync.replicas"),
    ),
    topic(
        "unclean.leader.election.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether a replica that lags may lead when no other is left, losing what it lacks.",
        synonyms=named("unclean.leader.election.enable"),
    ),
    topic(
        "leader.replication.throttled.replicas",
        SettingKind.LIST,
        (),
        "Replicas (partition:broker, or *) whose leaders' sending is throttled.",
        _REPLICAS,
    ),
    topic(
        "follower.replication.throttled.replicas",
        SettingKind.LIST,
        (),
        "Replicas (partition:broker, or *) whose followers' fetching is throttled.",
        _REPLICAS,
    ),
    topic(
        "penstock.validate.records",
        SettingKind.BOOLEAN,
        True,
        "Whether the leader checks every record of a produced batch, not only its header and CRC.",
        synonyms=named("penstock.validate.records"),
        own=True,
    ),
    topic(
        "penstock.max.decompressed.bytes",
        SettingKind.INT,
        33_554_432,
        "Largest decompressed size of a produced batch, or 16 times max.message.bytes if more.",
        at_least(1),
        synonyms=named("penstock.max.decompressed.bytes"),
        own=True,
    ),
    topic(
        "penstock.delay.ms",
        SettingKind.LONG,
        0,
        "Time a record is in the log before consumers see it; needs LogAppendTime. 0 for none.",
        between(0, MAX_DELAY_MS),
        own=True,
    ),
    topic(
        "penstock.delayed.messages",
        SettingKind.BOOLEAN,
        False,
        "Whether headers of a record may delay it, or cancel one that waits (docs/delays.md).",
        own=True,
    ),
    topic(
        "penstock.half.groups",
        SettingKind.LIST,
        (),
        "Groups whose half messages the topic takes; only for T.half (docs/half_messages.md).",
        _GROUPS,
        own=True,
    ),
)
