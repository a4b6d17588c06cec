"""Broker settings of share groups and streams groups, which Kafka 4 added."""

from functools import partial

from penstock.config.check import NOT_EMPTY, at_least, between
from penstock.config.declare import broker
from penstock.config.setting import INT_MAX, Setting, SettingKind, no_effect

_share = partial(broker, effect=no_effect("there are no share groups"))
_streams = partial(broker, effect=no_effect("there are no streams groups"))
_INT, _SHORT = SettingKind.INT, SettingKind.SHORT

_SHARE: tuple[Setting, ...] = (
    _share("group.share.enable", SettingKind.BOOLEAN, False, "Whether share groups are offered."),
    _share("group.share.session.timeout.ms", _INT, 45_000, "Session of a member.", at_least(1)),
    _share("group.share.min.session.timeout.ms", _INT, 45_000, "Shortest session.", at_least(1)),
    _share("group.share.max.session.timeout.ms", _INT, 60_000, "Longest session.", at_least(1)),
    _share("group.share.heartbeat.interval.ms", _INT, 5000, "Heartbeat interval.", at_least(1)),
    _share("group.share.min.heartbeat.interval.ms", _INT, 5000, "Shortest interval.", at_least(1)),
    _share("group.share.max.heartbeat.interval.ms", _INT, 15_000, "Longest interval.", at_least(1)),
    _share("group.share.max.size", _INT, 200, "Members of a group.", between(1, 1000)),
    _share("group.share.max.groups", _SHORT, 10, "Share groups of a cluster.", between(1, 100)),
    _share(
        "group.share.max.share.sessions", _INT, 2000, "Share sessions of a broker.", at_least(1)
    ),
    _share(
        "group.share.assignors", SettingKind.LIST, ("simple",), "Assignors on offer.", NOT_EMPTY
    ),
    _share(
        "group.share.assignment.interval.ms",
        _INT,
        1000,
        "Least time between two assignments.",
        at_least(0),
    ),
    _share("group.share.min.assignment.interval.ms", _INT, 0, "Least value for that.", at_least(0)),
    _share(
        "group.share.max.assignment.interval.ms",
        _INT,
        15_000,
        "Largest value for that.",
        at_least(0),
    ),
    _share(
        "group.share.initialize.retry.interval.ms",
        _INT,
        30_000,
        "Rest before a partition's share state is created again.",
        at_least(1),
    ),
    _share("group.share.delivery.count.limit", _INT, 5, "Deliveries of a record.", between(2, 10)),
    _share("group.share.min.delivery.count.limit", _INT, 2, "Least value for that.", between(2, 5)),
    _share(
        "group.share.max.delivery.count.limit", _INT, 10, "Largest value for that.", between(5, 25)
    ),
    _share(
        "group.share.partition.max.record.locks",
        _INT,
        2000,
        "Records of a partition under delivery.",
        between(100, 10_000),
    ),
    _share(
        "group.share.min.partition.max.record.locks",
        _INT,
        100,
        "Least value for that.",
        between(100, 2000),
    ),
    _share(
        "group.share.max.partition.max.record.locks",
        _INT,
        4000,
        "Largest value for that.",
        between(2000, 10_000),
    ),
    _share(
        "group.share.record.lock.duration.ms",
        _INT,
        30_000,
        "Time a member holds a record.",
        between(1000, 3_600_000),
    ),
    _share(
        "group.share.min.record.lock.duration.ms",
        _INT,
        15_000,
        "Least value for that.",
        between(1000, 30_000),
    ),
    _share(
        "group.share.max.record.lock.duration.ms",
        _INT,
        60_000,
        "Largest value for that.",
        between(30_000, 3_600_000),
    ),
    _share(
        "group.share.persister.class.name",
        SettingKind.STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "Java class that keeps share state.",
    ),
    _share(
        "share.fetch.purgatory.purge.interval.requests",
        _INT,
        1000,
        "Waiting share fetches after which finished ones are purged.",
    ),
    _share("share.fetch.max.fetch.records", _INT, INT_MAX, "Records of one share fetch."),
)

_SHARE_COORDINATOR: tuple[Setting, ...] = (
    _share(
        "share.coordinator.state.topic.num.partitions",
        _INT,
        50,
        "Partitions of the topic of share state.",
        at_least(1),
    ),
    _share(
        "share.coordinator.state.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of that topic.",
        at_least(1),
    ),
    _share(
        "share.coordinator.state.topic.min.isr",
        _SHORT,
        2,
        "min.insync.replicas of that topic.",
        at_least(1),
    ),
    _share(
        "share.coordinator.state.topic.segment.bytes",
        _INT,
        104_857_600,
        "Segment size of that topic.",
        at_least(1),
    ),
    _share(
        "share.coordinator.state.topic.compression.codec",
        _INT,
        0,
        "Codec of that topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        between(0, 4),
    ),
    _share(
        "share.coordinator.state.topic.prune.interval.ms",
        _INT,
        300_000,
        "Time between two cuts of what that topic no longer needs.",
        at_least(1),
    ),
    _share("share.coordinator.threads", _INT, 1, "Threads of the coordinator.", at_least(1)),
    _share(
        "share.coordinator.snapshot.update.records.per.snapshot",
        _INT,
        500,
        "Updates between two snapshots of share state.",
        between(0, 500),
    ),
    _share(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        _INT,
        300_000,
        "Time between two snapshots of partitions that do not change.",
        at_least(1),
    ),
    _share("share.coordinator.write.timeout.ms", _INT, 5000, "Time a write may take.", at_least(1)),
    _share(
        "share.coordinator.load.buffer.size",
        _INT,
        5_242_880,
        "Bytes read at a time when state is loaded.",
        at_least(1),
    ),
    _share(
        "share.coordinator.append.linger.ms",
        _INT,
        -1,
        "Time records are gathered before a write; -1 adapts to the load.",
        at_least(-1),
    ),
    _share(
        "share.coordinator.cached.buffer.max.bytes",
        _INT,
        1_048_588,
        "Largest write buffer kept for reuse.",
        at_least(524_288),
    ),
)

_STREAMS: tuple[Setting, ...] = (
    _streams("group.streams.session.timeout.ms", _INT, 45_000, "Session of a member.", at_least(1)),
    _streams(
        "group.streams.min.session.timeout.ms", _INT, 45_000, "Shortest session.", at_least(1)
    ),
    _streams("group.streams.max.session.timeout.ms", _INT, 60_000, "Longest session.", at_least(1)),
    _streams("group.streams.heartbeat.interval.ms", _INT, 5000, "Heartbeat interval.", at_least(1)),
    _streams(
        "group.streams.min.heartbeat.interval.ms", _INT, 5000, "Shortest interval.", at_least(1)
    ),
    _streams(
        "group.streams.max.heartbeat.interval.ms", _INT, 15_000, "Longest interval.", at_least(1)
    ),
    _streams("group.streams.max.size", _INT, INT_MAX, "Members of a group.", at_least(1)),
    _streams(
        "group.streams.num.standby.replicas", _INT, 0, "Standby copies of a task.", at_least(0)
    ),
    _streams("group.streams.max.standby.replicas", _INT, 2, "Most such copies.", at_least(0)),
    _streams(
        "group.streams.initial.rebalance.delay.ms",
        _INT,
        3000,
        "Time a new group waits for more members.",
        at_least(0),
    ),
    _streams(
        "group.streams.assignment.interval.ms",
        _INT,
        1000,
        "Least time between two assignments.",
        at_least(0),
    ),
    _streams(
        "group.streams.min.assignment.interval.ms", _INT, 0, "Least value for that.", at_least(0)
    ),
    _streams(
        "group.streams.max.assignment.interval.ms",
        _INT,
        15_000,
        "Largest value for that.",
        at_least(0),
    ),
)

SETTINGS: tuple[Setting, ...] = (*_SHARE, *_SHARE_COORDINATOR, *_STREAMS)
