"""Broker settings of consumer groups and their committed offsets."""

from penstock.config.check import at_least, between, one_of_any_case
from penstock.config.declare import broker
from penstock.config.setting import INT_MAX, Setting, SettingKind

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

_CONSUMER: tuple[Setting, ...] = (
    broker(
        "group.consumer.session.timeout.ms",
        SettingKind.INT,
        45_000,
        "Silence after which a member is out.",
        at_least(1),
    ),
    broker(
        "group.consumer.heartbeat.interval.ms",
        SettingKind.INT,
        5000,
        "Time between two heartbeats of a member.",
        at_least(1),
    ),
    broker("group.consumer.max.size", SettingKind.INT, INT_MAX, "Members of a group.", at_least(1)),
    broker(
        "group.consumer.assignors",
        SettingKind.LIST,
        ("uniform", "range", "ceil-range"),
        "Assignors on offer, the default first. ceil-range is Penstock's own: it rounds each share "
        "of a topic up, so that three members get 3, 3 and 1 of 7 partitions.",
    ),
    broker(
        "group.consumer.migration.policy",
        SettingKind.STRING,
        "bidirectional",
        "Which way a group may change between the classic and the consumer protocol.",
        one_of_any_case("disabled", "downgrade", "upgrade", "bidirectional"),
    ),
    broker(
        "group.consumer.regex.refresh.interval.ms",
        SettingKind.INT,
        600_000,
        "Time between two looks for topics that match a subscribed pattern.",
        at_least(10_000),
    ),
)

_BOUNDS: tuple[Setting, ...] = tuple(
    broker(name, SettingKind.INT, default, doc, at_least(1), own=True)
    for name, default, doc in (
        ("group.member.max.protocols", 1000, "Protocols (assignors) that a JoinGroup may name."),
        (
            "group.member.max.bytes",
            2 << 20,
            "Bytes of names and metadata that a member may send; more is an invalid request.",
        ),
        (
            "group.member.max.partitions",
            200_000,
            "Partitions that a member may report as its own in one heartbeat.",
        ),
        (
            "group.request.max.entries",
            20_000,
            "Topics that a heartbeat, or members that a SyncGroup may name.",
        ),
        (
            "group.max.pending.members",
            10_000,
            "Members of a group that were given an id and have not joined with it yet.",
        ),
        (
            "group.max.bytes",
            64 << 20,
            "Memory of one group's members; a member that needs more is not admitted.",
        ),
        (
            "group.coordinator.max.bytes",
            256 << 20,
            "Memory of all members of all groups that a broker coordinates; as above.",
        ),
    )
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
)

SETTINGS: tuple[Setting, ...] = (*_CLASSIC, *_CONSUMER, *_BOUNDS, *_OFFSETS)
