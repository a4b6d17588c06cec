"""Broker settings of SASL. A listener may have its own, as `listener.name.<name>.sasl.…`.

All are read-only: no client can change who is let in.
"""

from penstock.config.check import at_least
from penstock.config.declare import broker
from penstock.config.setting import Setting, SettingKind

_EVERYTHING_BYTES = 524_288

SETTINGS: tuple[Setting, ...] = (
    broker(
        "sasl.enabled.mechanisms",
        SettingKind.LIST,
        ("GSSAPI",),
        "Mechanisms that clients may choose from: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
    ),
    broker(
        "sasl.jaas.config",
        SettingKind.PASSWORD,
        None,
        "Users of PLAIN, and this broker's own user, in the syntax of JAAS. Mostly set for one "
        "listener and mechanism.",
    ),
    broker(
        "connections.max.reauth.ms",
        SettingKind.LONG,
        0,
        "Time after which a SASL client must authenticate again; 0 for never.",
        at_least(0),
    ),
    broker(
        "sasl.server.max.receive.size",
        SettingKind.INT,
        _EVERYTHING_BYTES,
        "Largest request before a client of a SASL listener is authenticated.",
        at_least(1),
    ),
    broker(
        "connection.failed.authentication.delay.ms",
        SettingKind.INT,
        100,
        "Time until a failed login is answered and its connection closed, to slow down guessing.",
        at_least(0),
    ),
    broker(
        "penstock.admin.user",
        SettingKind.STRING,
        None,
        "SCRAM user that is created before the first listener opens, unless it exists.",
        own=True,
    ),
    broker(
        "penstock.admin.password.file",
        SettingKind.STRING,
        None,
        "File with that user's password; unset: the environment variable PENSTOCK_ADMIN_PASSWORD.",
        own=True,
    ),
    broker(
        "penstock.sasl.plain.without.tls",
        SettingKind.BOOLEAN,
        False,
        "Whether PLAIN, which sends passwords as they are, may be enabled without TLS.",
        own=True,
    ),
)
