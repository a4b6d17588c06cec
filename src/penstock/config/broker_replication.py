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
    _cluster_wide(
        "auto.balance.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether the controller evens out the brokers when one joins or is gone for good.",
        own=True,
    ),
    _cluster_wide(
        "auto.balance.delay.ms",
        SettingKind.LONG,
        60_000,
        "Time without a change of the brokers before they are evened out.",
        at_least(0),
        own=True,
    ),
    _cluster_wide(
        "auto.balance.broker.gone.ms",
        SettingKind.LONG,
        3_600_000,
        "Time after which automatic balancing takes a broker for gone for good, unless "
        "replica.replacement.delay.ms is set.",
        at_least(0),
        own=True,
    ),
    _cluster_wide(
        "auto.balance.concurrent.partitions",
        SettingKind.INT,
        10,
        "Partitions that automatic balancing and replacement reassign at once.",
        at_least(1),
        own=True,
    ),
    _cluster_wide(
        "auto.balance.throttled.rate",
        SettingKind.LONG,
        10_000_000,
        "Bytes a second of reassignments, of each broker as the leader and as the follower, while "
        "automatic balancing or replacement is on; leader.reassignment.throttled.rate and "
        "follower.reassignment.throttled.rate override it.",
        at_least(1),
        own=True,
    ),
    _cluster_wide(
        "replica.replacement.delay.ms",
        SettingKind.LONG,
        -1,
        "Time after which the replicas of a broker that is gone are placed on other brokers; -1 is "
        "off.",
        at_least_or(0, -1),
        own=True,
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
    broker(
        "sasl.mechanism.inter.broker.protocol",
        SettingKind.STRING,
        "GSSAPI",
        "Mechanism by which brokers log in at each other: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
    ),
    broker(
        "ssl.endpoint.identification.algorithm",
        SettingKind.STRING,
        "https",
        "How brokers check each other's names; empty for no check.",
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
    _cluster_wide(
        "leader.reassignment.throttled.rate",
        SettingKind.LONG,
        LONG_MAX,
        "Bytes a second that leaders send to replicas that a reassignment adds (KIP-542).",
        at_least(0),
        own=True,
    ),
    _cluster_wide(
        "follower.reassignment.throttled.rate",
        SettingKind.LONG,
        LONG_MAX,
        "Bytes a second that replicas that a reassignment adds fetch (KIP-542).",
        at_least(0),
        own=True,
    ),
)

SETTINGS: tuple[Setting, ...] = (
    *_TOPICS,
    *_FOLLOWERS,
    *_LEADERS,
    *_THROTTLES,
)
