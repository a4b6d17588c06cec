"""Broker settings of the connection to ZooKeeper."""

from functools import partial

from penstock.config.check import at_least
from penstock.config.declare import broker, named
from penstock.config.setting import NOT_YET, Kind, Setting, no_effect
from penstock.config.zookeeper import CONNECT_STRING, DEFAULT_SESSION_TIMEOUT_MS

_later = partial(broker, effect=NOT_YET)

SETTINGS: tuple[Setting, ...] = (
    broker(
        "zookeeper.connect",
        Kind.STRING,
        None,
        "ZooKeeper servers as host:port pairs, with an optional /path; unset: embedded tree.",
        CONNECT_STRING,
    ),
    broker(
        "zookeeper.session.timeout.ms",
        Kind.INT,
        DEFAULT_SESSION_TIMEOUT_MS,
        "Silence after which ZooKeeper takes a broker for dead.",
        at_least(1),
    ),
    broker(
        "zookeeper.connection.timeout.ms",
        Kind.INT,
        None,
        "Time to reach ZooKeeper at start; the session timeout when unset.",
        at_least(1),
        fallbacks=named("zookeeper.session.timeout.ms"),
    ),
    _later(
        "zookeeper.set.acl",
        Kind.BOOLEAN,
        False,
        "Whether nodes are created so that only brokers may change them.",
    ),
    _later(
        "zookeeper.max.in.flight.requests",
        Kind.INT,
        10,
        "Requests to ZooKeeper that may wait for an answer.",
        at_least(1),
    ),
    _later(
        "zookeeper.ssl.client.enable",
        Kind.BOOLEAN,
        False,
        "Whether the connection to ZooKeeper uses TLS.",
    ),
    broker(
        "zookeeper.clientCnxnSocket",
        Kind.STRING,
        None,
        "Java class of the connection to ZooKeeper.",
        effect=no_effect("the ZooKeeper client is not Java; zookeeper.ssl.client.enable suffices"),
    ),
    _later(
        "zookeeper.ssl.keystore.location", Kind.STRING, None, "File with the broker's certificate."
    ),
    _later("zookeeper.ssl.keystore.password", Kind.PASSWORD, None, "Password of that file."),
    _later("zookeeper.ssl.keystore.type", Kind.STRING, None, "Format of that file."),
    _later(
        "zookeeper.ssl.truststore.location",
        Kind.STRING,
        None,
        "File with the authorities that ZooKeeper's certificate is checked against.",
    ),
    _later("zookeeper.ssl.truststore.password", Kind.PASSWORD, None, "Password of that file."),
    _later("zookeeper.ssl.truststore.type", Kind.STRING, None, "Format of that file."),
    _later("zookeeper.ssl.protocol", Kind.STRING, "TLSv1.2", "TLS version to begin with."),
    _later("zookeeper.ssl.enabled.protocols", Kind.LIST, None, "TLS versions that are allowed."),
    _later("zookeeper.ssl.cipher.suites", Kind.LIST, None, "Ciphers that are allowed."),
    _later(
        "zookeeper.ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "HTTPS",
        "How the server's name is checked; empty for no check.",
    ),
    _later(
        "zookeeper.ssl.crl.enable",
        Kind.BOOLEAN,
        False,
        "Whether lists of revoked certificates are asked.",
    ),
    _later(
        "zookeeper.ssl.ocsp.enable",
        Kind.BOOLEAN,
        False,
        "Whether revocation is asked for with OCSP.",
    ),
)
