"""Broker settings of SASL. A listener may have its own, as `listener.name.<name>.sasl.…`.

All are read-only: no client can change who is let in.
"""

from penstock.config.check import at_least, subset_of
from penstock.config.declare import broker
from penstock.config.setting import Setting, SettingKind

_EVERYTHING_BYTES = 524_288

_TOKENS: tuple[Setting, ...] = (
    broker(
        "sasl.oauthbearer.jwks.endpoint.url",
        SettingKind.STRING,
        None,
        "Where the issuer's keys are: https or file. OAUTHBEARER needs it.",
    ),
    broker(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        SettingKind.LONG,
        3_600_000,
        "Time between two readings of those keys.",
        at_least(1_000),
    ),
    broker(
        "sasl.oauthbearer.expected.issuer",
        SettingKind.STRING,
        None,
        "Issuer whose tokens are accepted. OAUTHBEARER needs it.",
    ),
    broker(
        "sasl.oauthbearer.expected.audience",
        SettingKind.LIST,
        (),
        "Audiences, one of which a token must have. OAUTHBEARER needs it.",
    ),
    broker(
        "sasl.oauthbearer.sub.claim.name",
        SettingKind.STRING,
        "sub",
        "Claim that names the user.",
    ),
    broker(
        "sasl.oauthbearer.clock.skew.seconds",
        SettingKind.INT,
        30,
        "Difference of clocks that is forgiven.",
        at_least(0),
    ),
    broker(
        "penstock.sasl.oauthbearer.algorithms",
        SettingKind.LIST,
        ("RS256", "PS256", "ES256"),
        "Algorithms of signatures that are accepted; all are asymmetric.",
        subset_of(
            *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
        ),
        own=True,
    ),
)

_LOGINS: tuple[Setting, ...] = (
    broker(
        "sasl.enabled.mechanisms",
        SettingKind.LIST,
        ("GSSAPI",),
        "Mechanisms that clients may choose from: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER.",
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

SETTINGS: tuple[Setting, ...] = (*_LOGINS, *_TOKENS)
