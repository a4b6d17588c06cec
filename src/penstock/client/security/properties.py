"""Parses a client's security settings, by librdkafka's names and by those of Kafka's Java clients.

Invariant: a setting that asks for security is in effect or refused. Nothing is read from a file
here, and no error shows a secret.
"""

from collections.abc import Mapping
from typing import Any

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import PLAINTEXT, ClientSecurity, SecurityProtocol
from penstock.client.security.sasl_settings import CALLBACK, read_sasl
from penstock.client.security.taken_settings import TakenSettings
from penstock.client.security.tls_settings import read_tls

_PREFIXES = ("ssl.", "sasl.", "security.", "enable.ssl.", "enable.sasl.", "https.ca.")
_PROTOCOL = "security.protocol"
# How often Java's clients fetch tokens and retry; ours decide that themselves.
_TUNING = ("sasl.login.refresh.", "sasl.login.retry.", "sasl.login.connect.", "sasl.login.read.")
_SECRETS = frozenset(
    (
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    )
)


def is_security_setting(name: str) -> bool:
    return name.startswith(_PREFIXES) or name == CALLBACK


def is_secret(name: str) -> bool:
    """Whether the setting's value must not be shown."""
    return name in _SECRETS


def redact(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, as they may be shown."""
    return {name: "******" if is_secret(name) else value for name, value in settings.items()}


def parse_client_security(settings: Mapping[str, Any]) -> ClientSecurity:
    """The security settings among `settings`; others are left alone. InvalidClientConfig says what
    is wrong and what to do."""
    names = TakenSettings(
        {name: value for name, value in settings.items() if is_security_setting(name)}
    )
    protocol = _read_protocol(names)
    tls = read_tls(names) if protocol.uses_tls else None
    sasl = read_sasl(names) if protocol.uses_sasl else None
    _refuse_rest(names.left(), protocol)
    if protocol is SecurityProtocol.PLAINTEXT:
        return PLAINTEXT
    return ClientSecurity(protocol=protocol, tls=tls, sasl=sasl)


def _read_protocol(names: TakenSettings) -> SecurityProtocol:
    text = names.take(_PROTOCOL)
    if text is None:
        return SecurityProtocol.PLAINTEXT
    try:
        return SecurityProtocol(text.upper())
    except ValueError:
        allowed = ", ".join(protocol.value.lower() for protocol in SecurityProtocol)
        raise InvalidClientConfig(f"{_PROTOCOL}={text[:40]}: choose from {allowed}") from None


def _refuse_rest(names: list[str], protocol: SecurityProtocol) -> None:
    left = [name for name in names if not name.startswith(_TUNING)]
    if not left:
        return
    of_sasl = [name for name in left if "sasl." in name or name == CALLBACK]
    of_tls = [name for name in left if name.startswith(("ssl.", "enable.ssl."))]
    if of_sasl and not protocol.uses_sasl:
        raise _without_effect(left, protocol, "sasl_ssl or sasl_plaintext")
    if of_tls and not protocol.uses_tls:
        raise _without_effect(left, protocol, "sasl_ssl" if protocol.uses_sasl else "ssl")
    raise InvalidClientConfig(
        f"{', '.join(left)}: not supported, or without effect beside the other settings; remove it"
    )


def _without_effect(
    names: list[str], protocol: SecurityProtocol, better: str
) -> InvalidClientConfig:
    return InvalidClientConfig(
        f"{', '.join(names)}: not in effect with {_PROTOCOL}={protocol.value.lower()}; set "
        f"{_PROTOCOL} to {better}, or remove it"
    )
