"""Broker settings of idempotent producers and transactions."""

from penstock.config.check import at_least
from penstock.config.declare import broker
from penstock.config.setting import Setting, SettingKind, UpdateMode

SETTINGS: tuple[Setting, ...] = (
    broker(
        "producer.id.expiration.ms",
        SettingKind.INT,
        86_400_000,
        "Silence after which a partition forgets a producer and its sequence numbers.",
        at_least(1),
        update=UpdateMode.CLUSTER_WIDE,
    ),
    broker(
        "transaction.max.timeout.ms",
        SettingKind.INT,
        900_000,
        "Longest time a producer may ask for a transaction.",
        at_least(1),
    ),
    broker(
        "transactional.id.expiration.ms",
        SettingKind.INT,
        604_800_000,
        "Silence after which a transactional id is forgotten.",
        at_least(1),
    ),
    broker(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        SettingKind.INT,
        10_000,
        "Time between two looks for transactions that have taken too long.",
        at_least(1),
    ),
    broker(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        SettingKind.INT,
        3_600_000,
        "Time between two looks for transactional ids to forget.",
        at_least(1),
    ),
    broker(
        "transaction.partition.verification.enable",
        SettingKind.BOOLEAN,
        True,
        "Whether a partition asks the coordinator before a transaction's first write.",
        update=UpdateMode.CLUSTER_WIDE,
    ),
    broker(
        "transaction.two.phase.commit.enable",
        SettingKind.BOOLEAN,
        True,
        "Whether producers may take part in an outside two-phase commit. Kafka's default is false: "
        "readers of committed records wait before what is prepared. Here transactions that wait "
        "for long are told of (`transaction.prepared.alarm.ms`), and Spark's sink needs them.",
    ),
    broker(
        "transaction.prepared.alarm.ms",
        SettingKind.INT,
        3_600_000,
        "Age at which a transaction of two-phase commit that waits for its decision is logged; "
        "-1: never.",
        at_least(-1),
        update=UpdateMode.CLUSTER_WIDE,
        own=True,
    ),
    broker(
        "add.partitions.to.txn.retry.backoff.ms",
        SettingKind.INT,
        20,
        "Rest before a partition is added to a transaction again.",
        at_least(1),
    ),
    broker(
        "add.partitions.to.txn.retry.backoff.max.ms",
        SettingKind.INT,
        100,
        "Limit of all such rests for one request.",
        at_least(0),
    ),
    broker(
        "transaction.state.log.num.partitions",
        SettingKind.INT,
        50,
        "Partitions of the topic of transactions; fixed once it exists.",
        at_least(1),
    ),
    broker(
        "transaction.state.log.replication.factor",
        SettingKind.SHORT,
        3,
        "Replicas of the topic of transactions.",
        at_least(1),
    ),
    broker(
        "transaction.state.log.min.isr",
        SettingKind.INT,
        2,
        "min.insync.replicas of the topic of transactions.",
        at_least(1),
    ),
    broker(
        "transaction.state.log.segment.bytes",
        SettingKind.INT,
        104_857_600,
        "Segment size of the topic of transactions.",
        at_least(1),
    ),
    broker(
        "transaction.state.log.load.buffer.size",
        SettingKind.INT,
        5_242_880,
        "Bytes read at a time when transactions are loaded.",
        at_least(1),
    ),
)
