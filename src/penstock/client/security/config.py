"""What a client needs to reach secured brokers: parsed and typed, files not read yet.

Invariant: no secret is in a repr, so that none gets into a log, a traceback or a plan.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DEFAULT_TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class SecurityProtocol(enum.Enum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self.value.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.value.startswith("SASL")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStoreSource:
    """A file or a text with certificates, a key, or both."""

    setting: str  # that names it, for errors
    location: str | None = None
    pem: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)  # of a PKCS12 file


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    trusted: KeyStoreSource | None = None  # None: the system's authorities
    certificate: KeyStoreSource | None = None  # None: the client shows no certificate
    key: KeyStoreSource | None = None  # None: in the same place as the certificate
    key_password: str | None = field(default=None, repr=False)
    key_password_setting: str = "ssl.key.password"  # noqa: S105 (a name, for errors)
    revoked_location: str | None = None  # a list of revoked certificates in PEM
    verifies_brokers: bool = True
    checks_hosts: bool = True
    versions: tuple[str, ...] = DEFAULT_TLS_VERSIONS
    ciphers: str | None = None  # in OpenSSL's format; None: OpenSSL's secure ones


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcLogin:
    """Tokens by client credentials from an identity provider."""

    token_endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    trusted: KeyStoreSource | None = None  # of the endpoint; None: the system's authorities


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredLogin:
    """A token without a signature, for development."""

    principal: str
    scopes: tuple[str, ...] = ()
    lifetime_s: int = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackLogin:
    """confluent-kafka's `oauth_cb`: a function that returns a token and when it expires, in seconds
    since 1970."""

    callback: Callable[[str], Any] = field(repr=False)
    config: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSasl:
    mechanism: str  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
    username: str = ""
    password: str = field(default="", repr=False)
    oauth: OidcLogin | UnsecuredLogin | CallbackLogin | None = None
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: ClientTls | None = None
    sasl: ClientSasl | None = None

    def __post_init__(self) -> None:
        assert (self.tls is not None) == self.protocol.uses_tls
        assert (self.sasl is not None) == self.protocol.uses_sasl


PLAINTEXT = ClientSecurity()
