"""Broker settings of the server as a whole: identity, shutdown, quotas, metrics, and our own."""

from functools import partial

from penstock.config.check import at_least, one_of
from penstock.config.declare import broker, named
from penstock.config.setting import ACTIVE, NOT_YET, Setting, SettingKind, no_effect

NO_JMX = no_effect("there is no JVM and no JMX")
NO_SAMPLES = no_effect("a throttle counts bytes as they pass, without samples")

_later = partial(broker, effect=NOT_YET)

_IDENTITY: tuple[Setting, ...] = (
    broker(
        "broker.id",
        SettingKind.INT,
        -1,
        "Number of this broker in its cluster; -1 asks for a free one above "
        "reserved.broker.max.id.",
        at_least(-1),
        fallbacks=named("node.id"),
    ),
    broker("node.id", SettingKind.INT, -1, "Another name of broker.id.", at_least(-1)),
    broker(
        "broker.id.generation.enable",
        SettingKind.BOOLEAN,
        True,
        "Whether a broker without a number gets one.",
    ),
    broker(
        "reserved.broker.max.id",
        SettingKind.INT,
        1000,
        "Largest number that may be written as broker.id while numbers are also given out.",
        at_least(0),
    ),
    broker(
        "broker.rack", SettingKind.STRING, None, "Rack or zone; replicas are spread over racks."
    ),
)

_SHUTDOWN: tuple[Setting, ...] = (
    broker(
        "controlled.shutdown.enable",
        SettingKind.BOOLEAN,
        True,
        "Whether a stopping broker first hands its leaderships over.",
    ),
    broker("controlled.shutdown.max.retries", SettingKind.INT, 3, "Attempts to hand them over."),
    broker(
        "controlled.shutdown.retry.backoff.ms", SettingKind.LONG, 5000, "Rest between attempts."
    ),
)

_QUOTAS: tuple[Setting, ...] = (
    _later("quota.window.num", SettingKind.INT, 11, "Samples kept for client quotas.", at_least(1)),
    _later(
        "quota.window.size.seconds",
        SettingKind.INT,
        1,
        "Length of a client quota's sample.",
        at_least(1),
    ),
    broker(
        "replication.quota.window.num",
        SettingKind.INT,
        11,
        "Samples kept for replication quotas.",
        at_least(1),
        effect=NO_SAMPLES,
    ),
    broker(
        "replication.quota.window.size.seconds",
        SettingKind.INT,
        1,
        "Length of a replication quota's sample.",
        at_least(1),
        effect=NO_SAMPLES,
    ),
    _later(
        "alter.log.dirs.replication.quota.window.num",
        SettingKind.INT,
        11,
        "Samples kept for the quota of moves between directories.",
        at_least(1),
    ),
    _later(
        "alter.log.dirs.replication.quota.window.size.seconds",
        SettingKind.INT,
        1,
        "Length of such a sample.",
        at_least(1),
    ),
    _later(
        "controller.quota.window.num",
        SettingKind.INT,
        11,
        "Samples kept for quotas on changes of topics.",
        at_least(1),
    ),
    _later(
        "controller.quota.window.size.seconds",
        SettingKind.INT,
        1,
        "Length of such a sample.",
        at_least(1),
    ),
    broker(
        "client.quota.callback.class",
        SettingKind.CLASS,
        None,
        "Class that decides client quotas.",
        effect=no_effect("Java classes cannot be loaded"),
    ),
)

_METRICS: tuple[Setting, ...] = (
    _later("metrics.num.samples", SettingKind.INT, 2, "Samples kept for a rate.", at_least(1)),
    _later(
        "metrics.sample.window.ms", SettingKind.LONG, 30_000, "Length of a sample.", at_least(1)
    ),
    _later(
        "metrics.recording.level",
        SettingKind.STRING,
        "INFO",
        "Finest level of metrics that is kept.",
    ),
    broker(
        "metric.reporters",
        SettingKind.LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Java classes that publish metrics.",
        effect=NO_JMX,
    ),
    broker(
        "auto.include.jmx.reporter",
        SettingKind.BOOLEAN,
        True,
        "Whether JMX publishes metrics without being listed.",
        effect=NO_JMX,
    ),
    broker("kafka.metrics.reporters", SettingKind.LIST, (), "More such classes.", effect=NO_JMX),
    broker(
        "kafka.metrics.polling.interval.secs",
        SettingKind.INT,
        10,
        "Time between two readings by those classes.",
        at_least(1),
        effect=NO_JMX,
    ),
    _later(
        "telemetry.max.bytes",
        SettingKind.INT,
        1_048_576,
        "Largest metrics message accepted from a client.",
        at_least(1),
    ),
)

_INTERNAL: tuple[Setting, ...] = (
    broker(
        "unstable.api.versions.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether unfinished versions of requests are offered.",
        effect=no_effect("only implemented versions exist"),
    ),
    broker(
        "unstable.feature.versions.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether unfinished features are offered.",
        effect=no_effect("only implemented features exist"),
    ),
)

_own = partial(broker, effect=NOT_YET, own=True)
_PENSTOCK: tuple[Setting, ...] = (
    _own(
        "controller.election",
        SettingKind.STRING,
        "race",
        "How a controller is chosen: all race for one node, or queue in order of arrival.",
        one_of("race", "queue"),
        effect=ACTIVE,
    ),
    _own(
        "offsets.storage",
        SettingKind.STRING,
        "kafka",
        "Where committed offsets live: in the log (kafka) or in ZooKeeper's tree.",
        one_of("kafka", "zookeeper"),
        effect=ACTIVE,
    ),
    _own(
        "storage.engine",
        SettingKind.STRING,
        "segmented",
        "How partitions lie on disk: each in its own segments, or all in one commit log.",
        one_of("segmented", "commitlog"),
    ),
    _own(
        "send.method",
        SettingKind.STRING,
        "sendfile",
        "How log bytes reach a socket: by the kernel, through a memory map, or copied.",
        one_of("sendfile", "mmap", "copy"),
    ),
)

SETTINGS: tuple[Setting, ...] = (
    *_IDENTITY,
    *_SHUTDOWN,
    *_QUOTAS,
    *_METRICS,
    *_INTERNAL,
    *_PENSTOCK,
)
