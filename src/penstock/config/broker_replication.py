"""Broker settings of topics, replicas, leaders and the controller."""

from functools import partial

from penstock.config.check import at_least, at_least_or, one_of
from penstock.config.declare import broker
from penstock.config.listeners import SECURITY_PROTOCOLS
from penstock.config.setting import (
    LONG_MAX,
    Setting,
    SettingKind,
    UpdateMode,
)

_cluster_wide = partial(broker, update=UpdateMode.CLUSTER_WIDE)

_TOPICS: tuple[Setting, ...] = (
    broker(
        "num.partitions",
        SettingKind.INT,
        1,
        "Partitions of a topic that is created without a number.",
        at_least(1),
    ),
    broker(
        "default.replication.factor",
        SettingKind.INT,
        1,
        "Replicas of a topic that is created without a number.",
    ),
    broker(
        "auto.create.topics.enable",
        SettingKind.BOOLEAN,
        True,
        "Whether a topic comes into being when a client first asks for it.",
    ),
    broker("delete.topic.enable", SettingKind.BOOLEAN, True, "Whether topics can be deleted."),
    _cluster_wide(
        "min.insync.replicas",
        SettingKind.INT,
        1,
        "Default of the topics' min.insync.replicas.",
        at_least(1),
    ),
    _cluster_wide(
        "unclean.leader.election.enable",
        SettingKind.BOOLEAN,
        False,
        "Default of the topics' unclean.leader.election.enable.",
    ),
)

_FOLLOWERS: tuple[Setting, ...] = (
    broker(
        "replica.lag.time.max.ms",
        SettingKind.LONG,
        30_000,
        "Time after which a follower that has not caught up leaves the in-sync set.",
    ),
    broker(
        "replica.lag.max.messages",
        SettingKind.LONG,
        -1,
        "Messages after which a follower that lags leaves the in-sync set, as Kafka 0.8 had it; "
        "-1 is off.",
        at_least_or(1, -1),
        own=True,
    ),
    broker(
        "replica.socket.timeout.ms",
        SettingKind.INT,
        30_000,
        "Time a follower waits for its leader.",
    ),
    broker(
        "replica.fetch.max.bytes",
        SettingKind.INT,
        1_048_576,
        "Bytes a follower asks for per partition; one larger batch still passes.",
        at_least(0),
    ),
    broker(
        "replica.fetch.wait.max.ms",
        SettingKind.INT,
        500,
        "Time a leader may hold a follower's fetch while there is nothing new.",
    ),
    broker(
        "replica.fetch.backoff.ms",
        SettingKind.INT,
        1000,
        "Time a follower rests after a failed fetch.",
        at_least(0),
    ),
    broker(
        "replica.fetch.min.bytes",
        SettingKind.INT,
        1,
        "Bytes a leader gathers before it answers a follower.",
    ),
    broker(
        "replica.fetch.response.max.bytes",
        SettingKind.INT,
        10_485_760,
        "Bytes a follower asks for in one fetch over all partitions.",
        at_least(0),
    ),
    broker(
        "replica.high.watermark.checkpoint.interval.ms",
        SettingKind.LONG,
        5000,
        "Time between two writes of the high watermarks.",
    ),
    broker(
        "replica.selector.class",
        SettingKind.STRING,
        None,
        "Who picks the replica that a consumer should read from: Kafka's RackAwareReplicaSelector, "
        "for one in the consumer's rack. Unset, the leader.",
    ),
)

_LEADERS: tuple[Setting, ...] = (
    broker(
        "auto.leader.rebalance.enable",
        SettingKind.BOOLEAN,
        True,
        "Whether leadership returns to the preferred replicas by itself.",
    ),
    broker(
        "leader.imbalance.per.broker.percentage",
        SettingKind.INT,
        10,
        "Share of a broker's partitions led elsewhere above which leaders are moved back.",
    ),
    broker(
        "leader.imbalance.check.interval.seconds",
        SettingKind.LONG,
        300,
        "Time between two looks at that share.",
        at_least(1),
    ),
    broker(
        "controller.socket.timeout.ms",
        SettingKind.INT,
        30_000,
        "Time the controller waits for a broker's answer.",
    ),
    broker(
        "security.inter.broker.protocol",
        SettingKind.STRING,
        "PLAINTEXT",
        "Security protocol among brokers; or set inter.broker.listener.name.",
        one_of(*SECURITY_PROTOCOLS),
    ),
)

_per_broker = partial(broker, update=UpdateMode.PER_BROKER)
_THROTTLES: tuple[Setting, ...] = (
    _per_broker(
        "leader.replication.throttled.rate",
        SettingKind.LONG,
        LONG_MAX,
        "Bytes a second that leaders send to throttled replicas.",
        at_least(0),
    ),
    _per_broker(
        "follower.replication.throttled.rate",
        SettingKind.LONG,
        LONG_MAX,
        "Bytes a second that throttled replicas fetch.",
        at_least(0),
    ),
)

SETTINGS: tuple[Setting, ...] = (
    *_TOPICS,
    *_FOLLOWERS,
    *_LEADERS,
    *_THROTTLES,
)
