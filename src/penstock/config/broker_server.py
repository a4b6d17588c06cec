"""Broker settings of the server as a whole: identity, shutdown, quotas, metrics, and our own."""

from functools import partial

from penstock.config.check import at_least, one_of
from penstock.config.declare import broker, named
from penstock.config.listeners import HOST_PORT, HTTP_URL
from penstock.config.setting import Setting, SettingKind

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

_own = partial(broker, own=True)
_PENSTOCK: tuple[Setting, ...] = (
    _own(
        "controller.election",
        SettingKind.STRING,
        "race",
        "How a controller is chosen: all race for one node, or queue in order of arrival.",
        one_of("race", "queue"),
    ),
    _own(
        "offsets.storage",
        SettingKind.STRING,
        "kafka",
        "Where committed offsets live: in the log (kafka) or in ZooKeeper's tree. After a switch a "
        "group's first fetch brings along what only the other one has.",
        one_of("kafka", "zookeeper"),
    ),
    _own(
        "dual.commit.enabled",
        SettingKind.BOOLEAN,
        False,
        "Whether offsets are committed to the log and to ZooKeeper, and the larger one counts: "
        "for switching offsets.storage while some clients or brokers still use the other one.",
    ),
    _own(
        "storage.engine",
        SettingKind.STRING,
        "segmented",
        "How partitions lie on disk: each in its own segments, or all of a log directory in one "
        "commit log. Fixed once a log directory has been used.",
        one_of("segmented", "commitlog"),
    ),
    _own(
        "storage.commitlog.file.bytes",
        SettingKind.LONG,
        1_073_741_824,
        "Size of a file of the commit log (storage.engine=commitlog).",
        at_least(1_048_576),
    ),
    _own(
        "storage.commitlog.min.live.ratio",
        SettingKind.DOUBLE,
        0.25,
        "A file of the commit log with no larger share of live bytes is emptied and removed: its "
        "live batches are written again at the log's end.",
        at_least(0),
    ),
    _own(
        "send.method",
        SettingKind.STRING,
        "sendfile",
        "How log bytes reach a socket: by the kernel (elsewhere than on Linux: copied), through a "
        "memory map, or copied through the broker's memory. For comparisons: sendfile costs least.",
        one_of("sendfile", "mmap", "copy"),
    ),
)

_METRICS: tuple[Setting, ...] = (
    _own(
        "metrics.listener",
        SettingKind.STRING,
        "",
        "HOST:PORT where metrics and health are served over HTTP; empty: nowhere.",
        HOST_PORT,
    ),
    _own(
        "metrics.names",
        SettingKind.STRING,
        "A",
        "Whose names Kafka's metrics get: A jmx_exporter and Strimzi, B Confluent, D Strimzi's "
        "Metrics Reporter.",
        one_of("A", "B", "D"),
    ),
    _own(
        "metrics.partition.limit",
        SettingKind.INT,
        10_000,
        "Partitions, and offsets of groups, of which a scrape has series.",
        at_least(0),
    ),
    _own(
        "metrics.otlp.endpoint",
        SettingKind.STRING,
        "",
        "URL to which metrics are pushed over HTTP in OpenTelemetry's protocol, such as "
        "http://127.0.0.1:4318/v1/metrics; empty: nowhere. Needs the extra otlp.",
        HTTP_URL,
    ),
    _own(
        "metrics.otlp.interval.ms",
        SettingKind.INT,
        60_000,
        "Time between two pushes of metrics.",
        at_least(100),
    ),
)

_LOGGING: tuple[Setting, ...] = (
    _own(
        "logging.format",
        SettingKind.STRING,
        "text",
        "Format of the broker's log: lines of text, or a JSON object per line.",
        one_of("text", "json"),
    ),
    _own(
        "logging.level",
        SettingKind.STRING,
        "INFO",
        "Lowest level that is logged. BROKER_LOGGER changes it, and single components, while the "
        "broker runs.",
        one_of("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"),
    ),
    _own(
        "logging.slow.request.ms",
        SettingKind.INT,
        500,
        "A request whose handler takes longer is logged. Waiting for data, replicas or other "
        "members does not count.",
        at_least(1),
    ),
    _own(
        "logging.stall.ms",
        SettingKind.INT,
        200,
        "Longer stalls of the event loop are logged with the stack that caused them.",
        at_least(5),
    ),
    _own(
        "logging.pause.ms",
        SettingKind.INT,
        5_000,
        "Longer pauses of the whole process (it was stopped, its machine frozen) are logged.",
        at_least(1_000),
    ),
)

SETTINGS: tuple[Setting, ...] = (
    *_IDENTITY,
    *_SHUTDOWN,
    *_PENSTOCK,
    *_METRICS,
    *_LOGGING,
)
