"""The SASL part of a client's settings: PLAIN, SCRAM and OAUTHBEARER.

JAAS entries are read as data; no class is loaded.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import (
    CallbackLogin,
    ClientSasl,
    KeyStoreSource,
    OidcLogin,
    UnsecuredLogin,
)
from penstock.client.security.taken_settings import TakenSettings
from penstock.config.jaas import JaasEntry, JaasError, parse_jaas

CALLBACK = "oauth_cb"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_JAAS = "sasl.jaas.config"
_OAUTH_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)


def read_sasl(names: TakenSettings) -> ClientSasl:
    mechanism = names.take_one("sasl.mechanism", "sasl.mechanisms")
    if mechanism is None or mechanism.upper() not in MECHANISMS:
        what = "is not set" if mechanism is None else f"{mechanism[:40]} is not supported"
        raise InvalidClientConfig(f"sasl.mechanism {what}: choose from {', '.join(MECHANISMS)}")
    mechanism = mechanism.upper()
    jaas = _read_jaas(names, mechanism)
    if mechanism == "OAUTHBEARER":
        return _read_oauth(names, jaas)
    username = names.take_text("sasl.username")
    password = names.take_secret("sasl.password")
    if jaas is not None:
        _exclude(_JAAS, {"sasl.username": username, "sasl.password": password})
        username, password = _user_of(jaas)
    if not username or password is None:
        missing = "sasl.username" if not username else "sasl.password"
        raise InvalidClientConfig(f"{missing} is not set, and {mechanism} needs it")
    if "\0" in username or "\0" in password:
        raise InvalidClientConfig("sasl.username or sasl.password contains a NUL character")
    return ClientSasl(mechanism=mechanism, username=username, password=password)


def _read_jaas(names: TakenSettings, mechanism: str) -> JaasEntry | None:
    text = names.take_secret(_JAAS)
    if text is None:
        return None
    try:
        entry = parse_jaas(text)
        entry.check_mechanism(mechanism)
    except JaasError as error:
        raise InvalidClientConfig(str(error)) from None
    return entry


def _user_of(jaas: JaasEntry) -> tuple[str | None, str | None]:
    unknown = jaas.options.keys() - {"username", "password"}
    if unknown:
        raise InvalidClientConfig(
            f"{_JAAS}: {', '.join(sorted(unknown))} has no effect in a client; remove it"
        )
    return jaas.options.get("username"), jaas.options.get("password")


def _read_oauth(names: TakenSettings, jaas: JaasEntry | None) -> ClientSasl:
    extensions = _read_pairs(names.take_text("sasl.oauthbearer.extensions"), ",")
    _check_handler(names)
    callback = names.take_object(CALLBACK)
    config = names.take_secret("sasl.oauthbearer.config") or ""
    is_unsecured = names.take_bool("enable.sasl.oauthbearer.unsecure.jwt", False)
    method = (names.take_text("sasl.oauthbearer.method") or "default").lower()
    endpoint = names.take_text("sasl.oauthbearer.token.endpoint.url")
    options = dict(jaas.options) if jaas is not None else {}
    login: OidcLogin | UnsecuredLogin | CallbackLogin
    if callback is not None:
        _exclude(CALLBACK, {"sasl.oauthbearer.token.endpoint.url": endpoint, _JAAS: jaas})
        login = CallbackLogin(callback=callback, config=config)
    elif method == "oidc" or endpoint is not None:
        extensions = {**extensions, **_take_extensions(options)}
        login = _read_oidc(names, endpoint, options)
    elif is_unsecured or any(name.startswith("unsecuredLogin") for name in options):
        extensions = {**extensions, **_take_extensions(options)}
        login = _read_unsecured(config, options)
    else:
        raise InvalidClientConfig(
            "OAUTHBEARER needs sasl.oauthbearer.method=oidc with "
            "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and "
            "sasl.oauthbearer.client.secret; or oauth_cb, a function that returns tokens"
        )
    return ClientSasl(
        mechanism="OAUTHBEARER", oauth=login, extensions=tuple(sorted(extensions.items()))
    )


def _check_handler(names: TakenSettings) -> None:
    handler = names.take_text("sasl.login.callback.handler.class")
    if handler is not None and handler not in _OAUTH_HANDLERS:
        raise InvalidClientConfig(
            f"sasl.login.callback.handler.class={handler[:200]}: classes are not loaded; "
            f"the one that is understood is {_OAUTH_HANDLERS[0]}"
        )


def _read_oidc(names: TakenSettings, endpoint: str | None, options: dict[str, str]) -> OidcLogin:
    client_id = names.take_one(
        "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"
    ) or options.pop("clientId", None)
    secret = names.take_secret("sasl.oauthbearer.client.secret")
    secret = secret or names.take_secret("sasl.oauthbearer.client.credentials.client.secret")
    secret = secret or options.pop("clientSecret", None)
    scope = names.take_text("sasl.oauthbearer.scope") or options.pop("scope", None)
    trusted = _read_endpoint_authorities(names)
    _refuse_options(options)
    for name, value in (
        ("sasl.oauthbearer.token.endpoint.url", endpoint),
        ("sasl.oauthbearer.client.id", client_id),
        ("sasl.oauthbearer.client.secret", secret),
    ):
        if not value:
            raise InvalidClientConfig(
                f"{name} is not set, and sasl.oauthbearer.method=oidc needs it"
            )
    assert endpoint is not None
    assert client_id is not None
    assert secret is not None
    return OidcLogin(
        token_endpoint=_check_endpoint(endpoint),
        client_id=client_id,
        client_secret=secret,
        scope=scope,
        trusted=trusted,
    )


def _read_endpoint_authorities(names: TakenSettings) -> KeyStoreSource | None:
    name = "https.ca.location"
    location, pem = names.take_text(name), names.take_text("https.ca.pem")
    _exclude(name, {"https.ca.pem": pem} if location else {})
    if location is None and pem is None:
        return None
    return KeyStoreSource(setting=name, location=location, pem=pem)


def _check_endpoint(url: str) -> str:
    """Only HTTPS, except on this machine: the request holds the secret (CVE-2025-27817: and no
    file)."""
    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname or "", parts.scheme
    except ValueError:
        host, scheme = "", ""
    is_local = host in ("localhost", "127.0.0.1", "::1")
    if not host or not (scheme == "https" or (scheme == "http" and is_local)):
        raise InvalidClientConfig(
            "sasl.oauthbearer.token.endpoint.url must be an https URL (http only on this machine), "
            "because the client's secret is sent there"
        )
    if parts.username or parts.password:
        raise InvalidClientConfig(
            "sasl.oauthbearer.token.endpoint.url has a user or a password: set "
            "sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"
        )
    return url


def _read_unsecured(config: str, options: dict[str, str]) -> UnsecuredLogin:
    """librdkafka's `principal=alice scope=a,b lifeSeconds=600`, or the options of Java's module."""
    pairs = _read_pairs(config, " ")
    principal = pairs.pop("principal", None) or options.pop("unsecuredLoginStringClaim_sub", None)
    scope = pairs.pop("scope", "") or options.pop("unsecuredLoginListClaim_scope", "")
    lifetime = pairs.pop("lifeSeconds", None) or options.pop(
        "unsecuredLoginLifetimeSeconds", "3600"
    )
    _refuse_options({**pairs, **options})
    if not principal:
        raise InvalidClientConfig("sasl.oauthbearer.config needs principal=NAME")
    if not lifetime.isascii() or not lifetime.isdigit() or not 0 < int(lifetime) <= 10**8:
        raise InvalidClientConfig("sasl.oauthbearer.config: lifeSeconds is a number of seconds")
    return UnsecuredLogin(
        principal=principal,
        scopes=tuple(part for part in scope.replace(",", " ").split() if part),
        lifetime_s=int(lifetime),
    )


def _take_extensions(options: dict[str, str]) -> dict[str, str]:
    prefix = "extension_"
    names = [name for name in options if name.startswith(prefix)]
    return {name.removeprefix(prefix): options.pop(name) for name in names}


def _read_pairs(text: str | None, separator: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, (text or "").split(separator)):
        name, equals, value = part.strip().partition("=")
        if not name or not equals:
            raise InvalidClientConfig("sasl.oauthbearer.*: write NAME=VALUE pairs")
        pairs[name] = value
    return pairs


def _refuse_options(options: Mapping[str, str]) -> None:
    if options:
        raise InvalidClientConfig(
            f"OAUTHBEARER: {', '.join(sorted(options))} has no effect in a client; remove it"
        )


def _exclude(name: str, others: Mapping[str, object]) -> None:
    given = [other for other, value in others.items() if value is not None]
    if given:
        raise InvalidClientConfig(f"{name} and {given[0]} exclude each other; set only one")
