"""Broker settings of Kafka's tiered storage. Penstock has none: they are accepted and change
nothing, except that switching the feature on is refused."""

from functools import partial

from penstock.config.check import ValueCheck, at_least, at_least_or, between
from penstock.config.declare import broker
from penstock.config.setting import LONG_MAX, Setting, SettingKind, UpdateMode
from penstock.config.topic_settings import NO_TIERS

_OFF = ValueCheck(
    allowed="only false: there is no tiered storage", accepts=lambda value: value is False
)
_tiered = partial(broker, effect=NO_TIERS)
_changing = partial(broker, effect=NO_TIERS, update=UpdateMode.CLUSTER_WIDE)
_INT, _LONG, _STRING = SettingKind.INT, SettingKind.LONG, SettingKind.STRING

_MANAGERS: tuple[Setting, ...] = (
    _tiered(
        "remote.log.storage.system.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether segments move away.",
        _OFF,
    ),
    _tiered("remote.log.storage.manager.class.name", _STRING, None, "Java class of the store."),
    _tiered("remote.log.storage.manager.class.path", _STRING, None, "Its class path."),
    _tiered(
        "remote.log.storage.manager.impl.prefix", _STRING, "rsm.config.", "Prefix of its settings."
    ),
    _tiered(
        "remote.log.metadata.manager.class.name",
        _STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Java class of the store's index.",
    ),
    _tiered("remote.log.metadata.manager.class.path", _STRING, None, "Its class path."),
    _tiered(
        "remote.log.metadata.manager.impl.prefix",
        _STRING,
        "rlmm.config.",
        "Prefix of its settings.",
    ),
    _tiered("remote.log.metadata.manager.listener.name", _STRING, None, "Listener it uses."),
    _tiered(
        "remote.log.metadata.custom.metadata.max.bytes",
        _INT,
        128,
        "Largest note on a remote segment.",
        at_least(0),
    ),
)

_WORK: tuple[Setting, ...] = (
    _changing(
        "remote.log.index.file.cache.total.size.bytes",
        _LONG,
        1_073_741_824,
        "Local space for remote indexes.",
        at_least(1),
    ),
    _tiered(
        "remote.log.index.file.cache.ttl.ms",
        _LONG,
        900_000,
        "Time an unused remote index stays; -1 for no limit.",
        at_least(-1),
    ),
    _tiered("remote.log.manager.thread.pool.size", _INT, 2, "Threads for the work.", at_least(1)),
    _tiered(
        "remote.log.manager.copier.thread.pool.size",
        _INT,
        10,
        "Threads that copy.",
        at_least_or(1, -1),
    ),
    _tiered(
        "remote.log.manager.expiration.thread.pool.size",
        _INT,
        10,
        "Threads that delete.",
        at_least_or(1, -1),
    ),
    _tiered(
        "remote.log.manager.follower.thread.pool.size",
        _INT,
        2,
        "Threads that read on followers.",
        at_least_or(1, -1),
    ),
    _tiered(
        "remote.log.manager.task.interval.ms", _LONG, 30_000, "Time between runs.", at_least(1)
    ),
    _tiered(
        "remote.log.manager.task.retry.backoff.ms", _LONG, 500, "First rest on error.", at_least(1)
    ),
    _tiered(
        "remote.log.manager.task.retry.backoff.max.ms",
        _LONG,
        30_000,
        "Longest rest on error.",
        at_least(1),
    ),
    _tiered(
        "remote.log.manager.task.retry.jitter",
        SettingKind.DOUBLE,
        0.2,
        "Random share of those rests.",
        between(0, 0.5),
    ),
    _tiered("remote.log.reader.threads", _INT, 10, "Threads that read.", at_least(1)),
    _tiered("remote.log.reader.max.pending.tasks", _INT, 100, "Reads that may wait.", at_least(1)),
    _changing("remote.fetch.max.wait.ms", _INT, 500, "Time a remote read may take.", at_least(1)),
    _tiered(
        "remote.list.offsets.request.timeout.ms",
        _LONG,
        30_000,
        "Time a look-up of offsets may take.",
        at_least(1),
    ),
)

_LIMITS: tuple[Setting, ...] = (
    _changing(
        "log.local.retention.ms",
        _LONG,
        -2,
        "Default of the topics' local.retention.ms.",
        at_least(-2),
    ),
    _changing(
        "log.local.retention.bytes",
        _LONG,
        -2,
        "Default of the topics' local.retention.bytes.",
        at_least(-2),
    ),
    _changing(
        "remote.log.manager.copy.max.bytes.per.second",
        _LONG,
        LONG_MAX,
        "Bytes a second copied.",
        at_least(1),
    ),
    _tiered(
        "remote.log.manager.copy.quota.window.num", _INT, 11, "Samples kept for it.", at_least(1)
    ),
    _tiered(
        "remote.log.manager.copy.quota.window.size.seconds",
        _INT,
        1,
        "Length of such a sample.",
        at_least(1),
    ),
    _changing(
        "remote.log.manager.fetch.max.bytes.per.second",
        _LONG,
        LONG_MAX,
        "Bytes a second read.",
        at_least(1),
    ),
    _tiered(
        "remote.log.manager.fetch.quota.window.num", _INT, 11, "Samples kept for it.", at_least(1)
    ),
    _tiered(
        "remote.log.manager.fetch.quota.window.size.seconds",
        _INT,
        1,
        "Length of such a sample.",
        at_least(1),
    ),
)

SETTINGS: tuple[Setting, ...] = (*_MANAGERS, *_WORK, *_LIMITS)
