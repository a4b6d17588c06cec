"""Broker settings of messages that wait: their limits, and the topic in which they are kept."""

from penstock.config.check import at_least, between
from penstock.config.declare import broker
from penstock.config.setting import Setting, SettingKind, UpdateMode
from penstock.config.topic_settings import MAX_DELAY_MS

_DAY_MS = 86_400_000

SETTINGS: tuple[Setting, ...] = (
    broker(
        "penstock.delayed.max.ms",
        SettingKind.LONG,
        30 * _DAY_MS,
        "Longest time a message may wait (see the topic setting penstock.delayed.messages).",
        between(1, MAX_DELAY_MS),
        update=UpdateMode.CLUSTER_WIDE,
        own=True,
    ),
    broker(
        "penstock.delayed.max.pending",
        SettingKind.LONG,
        10_000_000,
        "Most messages that may wait in one partition of the topic that keeps them.",
        at_least(1),
        update=UpdateMode.CLUSTER_WIDE,
        own=True,
    ),
    broker(
        "penstock.delayed.ended.retention.ms",
        SettingKind.LONG,
        _DAY_MS,
        "Time for which a cancel is told how a message with a delay id has ended.",
        at_least(1),
        update=UpdateMode.CLUSTER_WIDE,
        own=True,
    ),
    broker(
        "penstock.delayed.topic.num.partitions",
        SettingKind.INT,
        50,
        "Partitions of the topic of messages that wait; fixed once it exists.",
        at_least(1),
        own=True,
    ),
    broker(
        "penstock.delayed.topic.replication.factor",
        SettingKind.SHORT,
        3,
        "Replicas of the topic of messages that wait.",
        at_least(1),
        own=True,
    ),
    broker(
        "penstock.delayed.topic.min.isr",
        SettingKind.INT,
        2,
        "min.insync.replicas of the topic of messages that wait.",
        at_least(1),
        own=True,
    ),
    broker(
        "penstock.delayed.topic.segment.bytes",
        SettingKind.INT,
        104_857_600,
        "Segment size of the topic of messages that wait. A produced batch must fit into one.",
        at_least(1_048_576),
        own=True,
    ),
    broker(
        "penstock.delayed.topic.load.buffer.size",
        SettingKind.INT,
        5_242_880,
        "Bytes read at a time when messages that wait are loaded.",
        at_least(1),
        own=True,
    ),
)
