"""What a client needs to connect, from a file or a mapping: addresses, and security.

Settings of producers and consumers do not belong here; a name that is unknown is refused, because
a mistyped one may have asked for security.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import PLAINTEXT, ClientSecurity
from penstock.client.security.properties import is_security_setting, parse_client_security
from penstock.client.security.secret_values import resolve_value
from penstock.config.properties import read_properties
from penstock.config.raw_config import ConfigError

_ADDRESSES = ("bootstrap.servers", "metadata.broker.list")
# Settings of connections that our raw client decides itself, by librdkafka's and Java's names.
_TOLERATED = (
    *("client.id", "client.dns.lookup", "client.rack", "broker.address.family", "debug"),
    *("log_level", "request.timeout.ms", "connections.max.idle.ms", "metadata.max.age.ms"),
    *("default.api.timeout.ms", "api.version.request", "broker.address.ttl"),
)
_TOLERATED_PREFIXES = ("socket.", "reconnect.backoff.", "retry.backoff.", "retries")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    security: ClientSecurity = PLAINTEXT
    bootstrap: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the security alone


def read_client_config(path: Path) -> ClientConfig:
    """A properties file; its values may be `${env:NAME}` or `${file:PATH}`. Raises
    InvalidClientConfig."""
    try:
        raw = read_properties(path)
    except ConfigError as error:
        raise InvalidClientConfig(str(error)) from None
    if raw.problems or raw.warnings:
        raise InvalidClientConfig("; ".join((*raw.problems, *raw.warnings)))
    try:
        return parse_client_config(
            {name: resolve_value(name, value.text) for name, value in raw.values.items()}
        )
    except InvalidClientConfig as error:
        raise InvalidClientConfig(f"{path}: {error}") from None


def parse_client_config(settings: Mapping[str, Any]) -> ClientConfig:
    """Raises InvalidClientConfig."""
    unknown = [name for name in settings if not is_connection_setting(name)]
    if unknown:
        raise InvalidClientConfig(
            f"{', '.join(sorted(unknown))}: unknown, or not a setting of connections; this is for "
            "bootstrap.servers, security.protocol, sasl.* and ssl.*"
        )
    addresses = [str(settings[name]) for name in _ADDRESSES if settings.get(name)]
    return ClientConfig(
        security=parse_client_security(settings),
        bootstrap=addresses[0] if addresses else None,
        settings={name: value for name, value in settings.items() if is_security_setting(name)},
    )


def is_connection_setting(name: str) -> bool:
    return (
        name in _ADDRESSES
        or name in _TOLERATED
        or name.startswith(_TOLERATED_PREFIXES)
        or is_security_setting(name)
    )
