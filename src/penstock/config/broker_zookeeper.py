"""Broker settings of the connection to ZooKeeper."""

from functools import partial

from penstock.config.check import at_least
from penstock.config.declare import broker, named
from penstock.config.setting import NOT_YET, Setting, SettingKind, no_effect
from penstock.config.zookeeper import CONNECT_STRING, DEFAULT_SESSION_TIMEOUT_MS

_later = partial(broker, effect=NOT_YET)

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
    _later(
        "zookeeper.set.acl",
        SettingKind.BOOLEAN,
        False,
        "Whether nodes are created so that only brokers may change them.",
    ),
    _later(
        "zookeeper.max.in.flight.requests",
        SettingKind.INT,
        10,
        "Requests to ZooKeeper that may wait for an answer.",
        at_least(1),
    ),
    _later(
        "zookeeper.ssl.client.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether the connection to ZooKeeper uses TLS.",
    ),
    broker(
        "zookeeper.clientCnxnSocket",
        SettingKind.STRING,
        None,
        "Java class of the connection to ZooKeeper.",
        effect=no_effect("the ZooKeeper client is not Java; zookeeper.ssl.client.enable suffices"),
    ),
    _later(
        "zookeeper.ssl.keystore.location",
        SettingKind.STRING,
        None,
        "File with the broker's certificate.",
    ),
    _later("zookeeper.ssl.keystore.password", SettingKind.PASSWORD, None, "Password of that file."),
    _later("zookeeper.ssl.keystore.type", SettingKind.STRING, None, "Format of that file."),
    _later(
        "zookeeper.ssl.truststore.location",
        SettingKind.STRING,
        None,
        "File with the authorities that ZooKeeper's certificate is checked against.",
    ),
    _later(
        "zookeeper.ssl.truststore.password", SettingKind.PASSWORD, None, "Password of that file."
    ),
    _later("zookeeper.ssl.truststore.type", SettingKind.STRING, None, "Format of that file."),
    _later("zookeeper.ssl.protocol", SettingKind.STRING, "TLSv1.2", "TLS version to begin with."),
    _later(
        "zookeeper.ssl.enabled.protocols", SettingKind.LIST, None, "TLS versions that are allowed."
    ),
    _later("zookeeper.ssl.cipher.suites", SettingKind.LIST, None, "Ciphers that are allowed."),
    _later(
        "zookeeper.ssl.endpoint.identification.algorithm",
        SettingKind.STRING,
        "HTTPS",
        "How the server's name is checked; empty for no check.",
    ),
    _later(
        "zookeeper.ssl.crl.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether lists of revoked certificates are asked.",
    ),
    _later(
        "zookeeper.ssl.ocsp.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether revocation is asked for with OCSP.",
    ),
)
