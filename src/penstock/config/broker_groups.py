"""Broker settings of consumer groups and their committed offsets."""

from functools import partial

from penstock.config.check import at_least, between, one_of_any_case, subset_of
from penstock.config.declare import broker
from penstock.config.setting import INT_MAX, NOT_YET, Setting, SettingKind, no_effect

ONE_LOOP = no_effect("one event loop serves a broker")

_later = partial(broker, effect=NOT_YET)

_CLASSIC: tuple[Setting, ...] = (
    broker(
        "group.min.session.timeout.ms", SettingKind.INT, 6000, "Shortest session a member may ask."
    ),
    broker(
        "group.max.session.timeout.ms",
        SettingKind.INT,
        1_800_000,
        "Longest session a member may ask.",
    ),
    broker(
        "group.initial.rebalance.delay.ms",
        SettingKind.INT,
        3000,
        "Time a new group waits for more members before its first assignment.",
    ),
    broker("group.max.size", SettingKind.INT, INT_MAX, "Members of a group.", at_least(1)),
)

_COORDINATOR: tuple[Setting, ...] = (
    _later(
        "group.coordinator.rebalance.protocols",
        SettingKind.LIST,
        ("classic", "consumer", "streams"),
        "Group protocols that are offered.",
        subset_of("consumer", "classic", "share", "streams"),
    ),
    broker(
        "group.coordinator.threads",
        SettingKind.INT,
        4,
        "Threads of the group coordinator.",
        at_least(1),
        effect=ONE_LOOP,
    ),
    broker(
        "group.coordinator.background.threads",
        SettingKind.INT,
        2,
        "Threads for the group coordinator's long jobs.",
        at_least(1),
        effect=ONE_LOOP,
    ),
    _later(
        "group.coordinator.append.linger.ms",
        SettingKind.INT,
        -1,
        "Time the coordinator gathers records before it writes; -1 adapts to the load.",
        at_least(-1),
    ),
    _later(
        "group.coordinator.cached.buffer.max.bytes",
        SettingKind.INT,
        1_048_588,
        "Largest write buffer the coordinator keeps for reuse.",
        at_least(524_288),
    ),
    broker(
        "group.coordinator.new.enable",
        SettingKind.BOOLEAN,
        True,
        "Whether Kafka's second coordinator is used.",
        effect=no_effect("there is one coordinator"),
    ),
)

_CONSUMER: tuple[Setting, ...] = (
    broker(
        "group.consumer.session.timeout.ms",
        SettingKind.INT,
        45_000,
        "Silence after which a member is out.",
        at_least(1),
    ),
    _later(
        "group.consumer.min.session.timeout.ms",
        SettingKind.INT,
        45_000,
        "Shortest session a group may be given.",
        at_least(1),
    ),
    _later(
        "group.consumer.max.session.timeout.ms",
        SettingKind.INT,
        60_000,
        "Longest session a group may be given.",
        at_least(1),
    ),
    broker(
        "group.consumer.heartbeat.interval.ms",
        SettingKind.INT,
        5000,
        "Time between two heartbeats of a member.",
        at_least(1),
    ),
    _later(
        "group.consumer.min.heartbeat.interval.ms",
        SettingKind.INT,
        5000,
        "Shortest heartbeat interval a group may be given.",
        at_least(1),
    ),
    _later(
        "group.consumer.max.heartbeat.interval.ms",
        SettingKind.INT,
        15_000,
        "Longest heartbeat interval a group may be given.",
        at_least(1),
    ),
    broker("group.consumer.max.size", SettingKind.INT, INT_MAX, "Members of a group.", at_least(1)),
    broker(
        "group.consumer.assignors",
        SettingKind.LIST,
        ("uniform", "range"),
        "Assignors on offer, the default first.",
    ),
    broker(
        "group.consumer.migration.policy",
        SettingKind.STRING,
        "bidirectional",
        "Which way a group may change between the classic and the consumer protocol.",
        one_of_any_case("disabled", "downgrade", "upgrade", "bidirectional"),
    ),
    _later(
        "group.consumer.assignment.interval.ms",
        SettingKind.INT,
        1000,
        "Least time between two assignments of a group.",
        at_least(0),
    ),
    _later(
        "group.consumer.min.assignment.interval.ms",
        SettingKind.INT,
        0,
        "Least value a group may set for that.",
        at_least(0),
    ),
    _later(
        "group.consumer.max.assignment.interval.ms",
        SettingKind.INT,
        15_000,
        "Largest value a group may set for that.",
        at_least(0),
    ),
    broker(
        "group.consumer.regex.refresh.interval.ms",
        SettingKind.INT,
        600_000,
        "Time between two looks for topics that match a subscribed pattern.",
        at_least(10_000),
    ),
)

_OFFSETS: tuple[Setting, ...] = (
    broker(
        "offset.metadata.max.bytes",
        SettingKind.INT,
        4096,
        "Largest note a client may store with a committed offset.",
    ),
    broker(
        "offsets.load.buffer.size",
        SettingKind.INT,
        5_242_880,
        "Bytes read at a time when committed offsets are loaded.",
        at_least(1),
    ),
    broker(
        "offsets.retention.minutes",
        SettingKind.INT,
        10_080,
        "Time committed offsets outlive their group's last member.",
        at_least(1),
    ),
    broker(
        "offsets.retention.check.interval.ms",
        SettingKind.LONG,
        600_000,
        "Time between two looks for offsets whose time is over.",
        at_least(1),
    ),
    broker(
        "offsets.topic.num.partitions",
        SettingKind.INT,
        50,
        "Partitions of the topic of committed offsets; fixed once it exists.",
        at_least(1),
    ),
    broker(
        "offsets.topic.replication.factor",
        SettingKind.SHORT,
        3,
        "Replicas of the topic of committed offsets.",
        at_least(1),
    ),
    broker(
        "offsets.topic.segment.bytes",
        SettingKind.INT,
        104_857_600,
        "Segment size of the topic of committed offsets.",
        at_least(1),
    ),
    broker(
        "offsets.topic.compression.codec",
        SettingKind.INT,
        0,
        "Codec of that topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        between(0, 4),
    ),
    broker(
        "offsets.commit.timeout.ms",
        SettingKind.INT,
        5000,
        "Time a commit may wait for the replicas.",
        at_least(1),
    ),
    _later(
        "offsets.commit.required.acks",
        SettingKind.SHORT,
        -1,
        "Deprecated by Kafka: replicas that must hold a commit; -1 for all in sync.",
    ),
)

SETTINGS: tuple[Setting, ...] = (*_CLASSIC, *_COORDINATOR, *_CONSUMER, *_OFFSETS)
