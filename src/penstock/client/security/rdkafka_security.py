"""A client's security as librdkafka's settings, for the producer and the consumer.

Invariant: what librdkafka cannot do is refused here, not left out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import (
    DEFAULT_TLS_VERSIONS,
    CallbackLogin,
    ClientSasl,
    ClientSecurity,
    ClientTls,
    KeyStoreSource,
    OidcLogin,
    UnsecuredLogin,
)
from penstock.client.security.key_stores import is_pkcs12, read_client_keys, read_trusted
from penstock.client.security.properties import is_security_setting, parse_client_security

_PEM_KEY_ENDS = "PRIVATE KEY-----\n"


def translate_security(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with their security under librdkafka's names; Java's names are understood.
    Raises InvalidClientConfig."""
    security = parse_client_security(settings)
    others = {name: value for name, value in settings.items() if not is_security_setting(name)}
    return {**others, **rdkafka_security(security)}


def rdkafka_security(security: ClientSecurity) -> dict[str, Any]:
    """Raises InvalidClientConfig."""
    settings: dict[str, Any] = {}
    if security.protocol.uses_tls or security.protocol.uses_sasl:
        settings["security.protocol"] = security.protocol.value.lower()
    if security.tls is not None:
        settings |= _tls_settings(security.tls)
    if security.sasl is not None:
        settings |= _sasl_settings(security.sasl)
    return settings


def _tls_settings(tls: ClientTls) -> dict[str, Any]:
    if set(tls.versions) != set(DEFAULT_TLS_VERSIONS):
        raise InvalidClientConfig(
            "ssl.enabled.protocols is not supported by librdkafka, and so not by Producer and "
            "Consumer; remove it: they use TLS 1.2 and 1.3"
        )
    settings: dict[str, Any] = {
        "ssl.endpoint.identification.algorithm": "https" if tls.checks_hosts else "none",
        "enable.ssl.certificate.verification": tls.verifies_brokers,
    }
    if tls.trusted is not None:
        settings |= _trusted_settings(tls.trusted)
    if tls.certificate is not None:
        settings |= _identity_settings(tls, tls.certificate)
    if tls.revoked_location is not None:
        settings["ssl.crl.location"] = tls.revoked_location
    if tls.ciphers is not None:
        settings["ssl.cipher.suites"] = tls.ciphers
    return settings


def _trusted_settings(source: KeyStoreSource) -> dict[str, Any]:
    """A file is given by its path, because librdkafka reads one certificate of a text only."""
    pem = read_trusted(source)  # raises for what is missing
    if source.location is not None and not is_pkcs12(source):
        return {"ssl.ca.location": str(Path(source.location))}
    return {"ssl.ca.pem": pem}


def _identity_settings(tls: ClientTls, source: KeyStoreSource) -> dict[str, Any]:
    keys = read_client_keys(tls)  # raises for what is missing, and for JKS
    if is_pkcs12(source):
        return {
            "ssl.keystore.location": source.location,
            "ssl.keystore.password": source.password or "",
        }
    password = {} if keys.key_password is None else {"ssl.key.password": keys.key_password}
    key = tls.key or source
    if source.location is not None and key.location is not None:
        locations = {"ssl.certificate.location": source.location, "ssl.key.location": key.location}
        return {**locations, **password}
    assert keys.identity_pem is not None
    start = keys.identity_pem.index(_PEM_KEY_ENDS, 30) + len(_PEM_KEY_ENDS)
    return {
        "ssl.key.pem": keys.identity_pem[:start],
        "ssl.certificate.pem": keys.identity_pem[start:],
        **password,
    }


def _sasl_settings(sasl: ClientSasl) -> dict[str, Any]:
    settings: dict[str, Any] = {"sasl.mechanisms": sasl.mechanism}
    if sasl.oauth is None:
        return {**settings, "sasl.username": sasl.username, "sasl.password": sasl.password}
    pairs = ",".join(f"{name}={value}" for name, value in sasl.extensions)
    if isinstance(sasl.oauth, OidcLogin):
        if pairs:
            settings["sasl.oauthbearer.extensions"] = pairs
        return settings | _oidc_settings(sasl.oauth)
    if pairs:
        raise InvalidClientConfig(
            "sasl.oauthbearer.extensions: librdkafka sends them with sasl.oauthbearer.method=oidc "
            "only; oauth_cb returns its own"
        )
    if isinstance(sasl.oauth, UnsecuredLogin):
        return settings | _unsecured_settings(sasl.oauth)
    return settings | _callback_settings(sasl.oauth)


def _oidc_settings(login: OidcLogin) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": login.token_endpoint,
        "sasl.oauthbearer.client.id": login.client_id,
        "sasl.oauthbearer.client.secret": login.client_secret,
    }
    if login.scope is not None:
        settings["sasl.oauthbearer.scope"] = login.scope
    if login.trusted is not None and login.trusted.location is not None:
        settings["https.ca.location"] = login.trusted.location
    elif login.trusted is not None:
        settings["https.ca.pem"] = read_trusted(login.trusted)
    return settings


def _unsecured_settings(login: UnsecuredLogin) -> dict[str, Any]:
    scope = f" scope={','.join(login.scopes)}" if login.scopes else ""
    lifetime = f" lifeSeconds={login.lifetime_s}"
    return {
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": f"principal={login.principal}{scope}{lifetime}",
    }


def _callback_settings(login: CallbackLogin) -> dict[str, Any]:
    config = {"sasl.oauthbearer.config": login.config} if login.config else {}
    return {"oauth_cb": login.callback, **config}
