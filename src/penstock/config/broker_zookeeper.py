"""Broker settings of the connection to ZooKeeper, its TLS and its login."""

from penstock.config.check import at_least
from penstock.config.declare import broker, named
from penstock.config.setting import Setting, SettingKind
from penstock.config.zookeeper import CONNECT_STRING, DEFAULT_SESSION_TIMEOUT_MS

_CONNECTION: tuple[Setting, ...] = (
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

_TLS: tuple[Setting, ...] = (
    broker(
        "zookeeper.ssl.client.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether the connection to ZooKeeper uses TLS.",
    ),
    broker(
        "zookeeper.clientCnxnSocket",
        SettingKind.STRING,
        None,
        "Java's class of the connection; with TLS Netty's, if it is set.",
    ),
    broker(
        "zookeeper.ssl.keystore.location",
        SettingKind.STRING,
        None,
        "File with the broker's key and certificate, which it shows to ZooKeeper: PEM or PKCS12.",
    ),
    broker(
        "zookeeper.ssl.keystore.password",
        SettingKind.PASSWORD,
        None,
        "Password of that file, or of the encrypted key in it.",
    ),
    broker(
        "zookeeper.ssl.keystore.type",
        SettingKind.STRING,
        None,
        "Format of that file. Its content says it, too, and is believed.",
    ),
    broker(
        "zookeeper.ssl.truststore.location",
        SettingKind.STRING,
        None,
        "File of the authorities that sign ZooKeeper's certificates: PEM or PKCS12.",
    ),
    broker(
        "zookeeper.ssl.truststore.password",
        SettingKind.PASSWORD,
        None,
        "Password of that file, if PKCS12.",
    ),
    broker(
        "zookeeper.ssl.truststore.type",
        SettingKind.STRING,
        None,
        "Format of that file. Its content says it, too, and is believed.",
    ),
    broker(
        "zookeeper.ssl.enabled.protocols",
        SettingKind.LIST,
        None,
        "TLS versions that are allowed; unset: TLSv1.2 and TLSv1.3.",
    ),
    broker(
        "zookeeper.ssl.endpoint.identification.algorithm",
        SettingKind.STRING,
        "HTTPS",
        "How host names in ZooKeeper's certificates are checked; empty for no check.",
    ),
)

_LOGIN: tuple[Setting, ...] = (
    broker(
        "zookeeper.set.acl",
        SettingKind.BOOLEAN,
        False,
        "Whether only brokers may change the znodes that are created, and read those of users.",
    ),
    broker(
        "penstock.zookeeper.sasl.jaas.config",
        SettingKind.PASSWORD,
        None,
        "The login at ZooKeeper by DIGEST-MD5, as in Client of a JAAS file.",
        own=True,
    ),
)

SETTINGS: tuple[Setting, ...] = (*_CONNECTION, *_TLS, *_LOGIN)
