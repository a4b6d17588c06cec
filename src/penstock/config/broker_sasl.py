"""Broker settings of two SASL mechanisms: Kerberos tickets and OAuth bearer tokens."""

from functools import partial

from penstock.config.check import between, one_of_any_case
from penstock.config.declare import broker
from penstock.config.setting import NOT_YET, Setting, SettingKind, UpdateMode, no_effect

_kerberos = partial(broker, effect=no_effect("GSSAPI is not offered"), update=UpdateMode.PER_BROKER)
_login = partial(broker, effect=NOT_YET, update=UpdateMode.PER_BROKER)
_later = partial(broker, effect=NOT_YET)
_java = partial(broker, effect=no_effect("Java classes cannot be loaded"))
_STRING, _LONG, _INT, _DOUBLE = (
    SettingKind.STRING,
    SettingKind.LONG,
    SettingKind.INT,
    SettingKind.DOUBLE,
)

_KERBEROS: tuple[Setting, ...] = (
    _kerberos("sasl.kerberos.service.name", _STRING, None, "Principal the brokers run as."),
    _kerberos(
        "sasl.kerberos.kinit.cmd",
        _STRING,
        "/usr/bin/kinit",
        "Command for tickets.",
        update=UpdateMode.READ_ONLY,
    ),
    _kerberos(
        "sasl.kerberos.principal.to.local.rules",
        SettingKind.LIST,
        ("DEFAULT",),
        "Rules that turn a Kerberos name into a short one.",
    ),
    _kerberos(
        "sasl.kerberos.ticket.renew.window.factor",
        _DOUBLE,
        0.8,
        "Share of a ticket's life after which it is renewed.",
    ),
    _kerberos("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05, "Random share added to it."),
    _kerberos(
        "sasl.kerberos.min.time.before.relogin", _LONG, 60_000, "Least time between two renewals."
    ),
)

_LOGIN: tuple[Setting, ...] = (
    _login(
        "sasl.login.refresh.window.factor",
        _DOUBLE,
        0.8,
        "Share of a token's life after which it is renewed.",
        between(0.5, 1.0),
    ),
    _login(
        "sasl.login.refresh.window.jitter",
        _DOUBLE,
        0.05,
        "Random share added to it.",
        between(0.0, 0.25),
    ),
    _login(
        "sasl.login.refresh.min.period.seconds",
        SettingKind.SHORT,
        60,
        "Least time between two renewals.",
        between(0, 900),
    ),
    _login(
        "sasl.login.refresh.buffer.seconds",
        SettingKind.SHORT,
        300,
        "Time before a token's end by which it is renewed.",
        between(0, 3600),
    ),
    _later("sasl.login.connect.timeout.ms", _INT, None, "Time to reach the token server."),
    _later("sasl.login.read.timeout.ms", _INT, None, "Time to read its answer."),
    _later("sasl.login.retry.backoff.ms", _LONG, 100, "First rest after a failed login."),
    _later("sasl.login.retry.backoff.max.ms", _LONG, 10_000, "Longest rest after failed logins."),
)

_BEARER: tuple[Setting, ...] = (
    _later("sasl.oauthbearer.token.endpoint.url", _STRING, None, "Where tokens are issued."),
    _later("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, "Where the issuer's keys are."),
    _later(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        _LONG,
        3_600_000,
        "Time between two readings of those keys.",
    ),
    _later(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        _LONG,
        100,
        "First rest after a failed reading.",
    ),
    _later(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        _LONG,
        10_000,
        "Longest rest after failed readings.",
    ),
    _later("sasl.oauthbearer.scope.claim.name", _STRING, "scope", "Claim that holds the scope."),
    _later("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "Claim that holds the subject."),
    _later("sasl.oauthbearer.scope", _STRING, None, "Scope the broker asks for."),
    _later(
        "sasl.oauthbearer.clock.skew.seconds", _INT, 30, "Difference of clocks that is forgiven."
    ),
    _later(
        "sasl.oauthbearer.expected.audience", SettingKind.LIST, (), "Audiences that are accepted."
    ),
    _later("sasl.oauthbearer.expected.issuer", _STRING, None, "Issuer that is accepted."),
    _later(
        "sasl.oauthbearer.header.urlencode",
        SettingKind.BOOLEAN,
        False,
        "Whether id and secret are URL-encoded in the login header.",
    ),
    _later(
        "sasl.oauthbearer.client.credentials.client.id", _STRING, None, "The broker's client id."
    ),
    _later(
        "sasl.oauthbearer.client.credentials.client.secret",
        SettingKind.PASSWORD,
        None,
        "Its secret.",
    ),
    _java(
        "sasl.oauthbearer.jwt.retriever.class",
        SettingKind.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Java class that fetches tokens.",
    ),
    _java(
        "sasl.oauthbearer.jwt.validator.class",
        SettingKind.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Java class that checks tokens.",
    ),
)

_ASSERTION: tuple[Setting, ...] = (
    _later("sasl.oauthbearer.assertion.file", _STRING, None, "File of a finished assertion."),
    _later("sasl.oauthbearer.assertion.template.file", _STRING, None, "File of claims to add."),
    _later(
        "sasl.oauthbearer.assertion.algorithm",
        _STRING,
        "RS256",
        "How an assertion is signed.",
        one_of_any_case("RS256", "ES256"),
    ),
    _later("sasl.oauthbearer.assertion.private.key.file", _STRING, None, "Key that signs it."),
    _later(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        SettingKind.PASSWORD,
        None,
        "Password of that key.",
    ),
    _later("sasl.oauthbearer.assertion.claim.aud", _STRING, None, "Its audience."),
    _later("sasl.oauthbearer.assertion.claim.iss", _STRING, None, "Its issuer."),
    _later("sasl.oauthbearer.assertion.claim.sub", _STRING, None, "Its subject."),
    _later(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        _INT,
        300,
        "Seconds until it ends.",
        between(0, 86_400),
    ),
    _later(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        _INT,
        60,
        "Seconds before now at which it begins.",
        between(0, 3600),
    ),
    _later(
        "sasl.oauthbearer.assertion.claim.jti.include",
        SettingKind.BOOLEAN,
        False,
        "Whether it carries an id of its own.",
    ),
)

SETTINGS: tuple[Setting, ...] = (*_KERBEROS, *_LOGIN, *_BEARER, *_ASSERTION)
