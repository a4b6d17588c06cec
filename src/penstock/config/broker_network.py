"""Broker settings of the network: listeners, sockets, connection limits, request sizes."""

from functools import partial

from penstock.config.check import at_least
from penstock.config.declare import broker, named
from penstock.config.listeners import HOST_LIMITS, LISTENERS, PROTOCOL_MAP
from penstock.config.setting import INT_MAX, Setting, SettingKind, UpdateMode

_per_broker = partial(broker, update=UpdateMode.PER_BROKER)
_cluster_wide = partial(broker, update=UpdateMode.CLUSTER_WIDE)

_LISTENERS: tuple[Setting, ...] = (
    broker(
        "listeners",
        SettingKind.LIST,
        ("PLAINTEXT://:9092",),
        "Addresses the broker listens on, as NAME://host:port; no host means every address.",
        LISTENERS,
    ),
    broker(
        "advertised.listeners",
        SettingKind.LIST,
        None,
        "Addresses that clients are told to use; those of listeners when unset.",
        LISTENERS,
        fallbacks=named("listeners"),
    ),
    broker(
        "listener.security.protocol.map",
        SettingKind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name.",
        PROTOCOL_MAP,
    ),
    broker(
        "inter.broker.listener.name",
        SettingKind.STRING,
        None,
        "Listener the brokers use among themselves; or set security.inter.broker.protocol.",
    ),
)

_SOCKETS: tuple[Setting, ...] = (
    broker(
        "socket.send.buffer.bytes", SettingKind.INT, 102_400, "Send buffer of a socket; -1: system."
    ),
    broker(
        "socket.receive.buffer.bytes",
        SettingKind.INT,
        102_400,
        "Receive buffer of a socket; -1 leaves it to the system.",
    ),
    broker(
        "socket.request.max.bytes",
        SettingKind.INT,
        104_857_600,
        "Largest Produce request, and the most of any other; a longer one closes the connection.",
        at_least(1),
    ),
    broker(
        "penstock.request.max.bytes",
        SettingKind.INT,
        4_194_304,
        "Largest request other than Produce; SyncGroup may have 20 MiB.",
        at_least(65_536),
    ),
    broker(
        "penstock.request.max.elements",
        SettingKind.INT,
        60_000,
        "Entries of all arrays of a request together; an entry with fields counts twice.",
        at_least(10_000),
    ),
    broker(
        "socket.listen.backlog.size",
        SettingKind.INT,
        50,
        "Connections that may wait to be accepted.",
        at_least(1),
    ),
)

_CONNECTIONS: tuple[Setting, ...] = (
    broker("max.connections", SettingKind.INT, INT_MAX, "Connections of a broker.", at_least(0)),
    broker(
        "max.connections.per.ip",
        SettingKind.INT,
        INT_MAX,
        "Connections from one address; 0 needs max.connections.per.ip.overrides.",
        at_least(0),
    ),
    broker(
        "max.connections.per.ip.overrides",
        SettingKind.STRING,
        "",
        "Addresses with a limit of their own, as host:count pairs.",
        HOST_LIMITS,
    ),
    broker(
        "max.connection.creation.rate",
        SettingKind.INT,
        INT_MAX,
        "New connections a second that a broker accepts.",
        at_least(0),
    ),
    broker(
        "connections.max.idle.ms",
        SettingKind.LONG,
        600_000,
        "Silence after which a connection is closed.",
    ),
)

_REQUESTS: tuple[Setting, ...] = (
    broker(
        "queued.max.request.bytes",
        SettingKind.LONG,
        -1,
        "Bytes of requests that may wait before the broker stops reading; -1 for no limit.",
    ),
    broker(
        "request.timeout.ms", SettingKind.INT, 30_000, "Time a broker waits for another's answer."
    ),
    broker(
        "fetch.max.bytes",
        SettingKind.INT,
        57_671_680,
        "Most bytes in the answer to one fetch.",
        at_least(1024),
    ),
    broker(
        "max.incremental.fetch.session.cache.slots",
        SettingKind.INT,
        1000,
        "Fetch sessions a broker remembers.",
        at_least(0),
    ),
    broker(
        "max.request.partition.size.limit",
        SettingKind.INT,
        2000,
        "Partitions in one answer to DescribeTopicPartitions.",
        at_least(1),
    ),
)

SETTINGS: tuple[Setting, ...] = (*_LISTENERS, *_SOCKETS, *_CONNECTIONS, *_REQUESTS)
