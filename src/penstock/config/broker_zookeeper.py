"""Broker settings of the connection to ZooKeeper."""

from penstock.config.check import at_least
from penstock.config.declare import broker, named
from penstock.config.setting import Setting, SettingKind
from penstock.config.zookeeper import CONNECT_STRING, DEFAULT_SESSION_TIMEOUT_MS

SETTINGS: tuple[Setting, ...] = (
    broker(
        "zookeeper.connect",
        SettingKind.STRING,
        None,
        "ZooKeeper servers as host:port pairs, with an optional /path; unset: embedded tree.",
        CONNECT_STRING,
    ),
    broker(
        "zookeeper.session.timeout.ms",
        SettingKind.INT,
        DEFAULT_SESSION_TIMEOUT_MS,
        "Silence after which ZooKeeper takes a broker for dead.",
        at_least(1),
    ),
    broker(
        "zookeeper.connection.timeout.ms",
        SettingKind.INT,
        None,
        "Time to reach ZooKeeper at start; the session timeout when unset.",
        at_least(1),
        fallbacks=named("zookeeper.session.timeout.ms"),
    ),
)
