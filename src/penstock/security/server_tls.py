"""The TLS of one listener: its context, replaced when its files change, and principals of clients.

No sockets, and no timer: `certificate_reload` in server asks for reloads. Invariant: a context is
in use only if its key and certificates match; where a new one fails, the old one stays.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.security.certificate import MalformedCertificate, ParsedCertificate, read_certificate
from penstock.security.distinguished_name import format_rfc2253
from penstock.security.key_files import (
    KeyMaterial,
    TlsConfigError,
    TlsMaterial,
    describe_setting,
    read_material,
)
from penstock.security.principal import ANONYMOUS, Principal
from penstock.security.principal_mapping import (
    BadMappingRules,
    MappingRule,
    map_name,
    parse_mapping_rules,
)
from penstock.security.tls_config import TlsConfig
from penstock.security.tls_statistics import TlsStatistics
from penstock.security.tls_versions import set_ciphers, set_versions

_VERIFY = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class LoadedTls(NamedTuple):
    """A context that can be used, and what it was made of."""

    context: ssl.SSLContext
    certificate: ParsedCertificate  # the broker's
    content_hash: bytes


class ServerTls:
    """Owned by the event loop, except `load`, which any thread may call."""

    def __init__(self, config: TlsConfig) -> None:
        """Reads the files; raises TlsConfigError."""
        self.listener = config.listener
        self.reloads = 0
        self.failed_reloads = 0
        self._config = config
        self._rules = _parse_rules(config)
        self._loaded = self.load()

    @property
    def context(self) -> ssl.SSLContext:
        """For a new connection."""
        return self._loaded.context

    @property
    def certificate(self) -> ParsedCertificate:
        return self._loaded.certificate

    def load(self) -> LoadedTls:
        """The files as they are now; raises TlsConfigError."""
        return load_tls(self._config, read_material(self._config))

    def is_current(self, loaded: LoadedTls) -> bool:
        return loaded.content_hash == self._loaded.content_hash

    def find_objection(self, loaded: LoadedTls, now_s: float) -> str | None:
        """Why the certificate must not replace the one in use; None: it may."""
        old, new = self._loaded.certificate, loaded.certificate
        if new.not_after_s <= now_s:
            return "the new certificate has expired"
        if new.not_before_s > now_s:
            return "the new certificate is not valid yet"
        if new.subject != old.subject and not self._config.allow_dn_changes:
            name = format_rfc2253(new.subject)
            return f"the new certificate has another name ({name}); ssl.allow.dn.changes allows it"
        lost = old.alternative_names - new.alternative_names
        if lost and not self._config.allow_san_changes:
            return (
                "the new certificate lacks alternative names of the old one; "
                "ssl.allow.san.changes allows it"
            )
        return None

    def replace(self, loaded: LoadedTls) -> None:
        """New connections use it from here on; open ones keep theirs."""
        self._loaded = loaded
        self.reloads += 1

    def statistics(self) -> TlsStatistics:
        return TlsStatistics(
            expires_s=self._loaded.certificate.not_after_s,
            reloads=self.reloads,
            failed_reloads=self.failed_reloads,
        )

    def find_principal(self, certificate: bytes | None) -> Principal | None:
        """The principal of a verified client certificate in DER; None: no rule applies to its name.
        A client without a certificate, where that is allowed, is anonymous."""
        if certificate is None:
            return ANONYMOUS
        try:
            name = map_name(self._rules, format_rfc2253(read_certificate(certificate).subject))
        except MalformedCertificate:
            return None
        return None if name is None else Principal("User", name)

    def find_own_principal(self) -> Principal | None:
        """As whom a broker with the same certificate and rules knows this one."""
        if self._config.client_auth == "none":
            return ANONYMOUS
        name = map_name(self._rules, format_rfc2253(self.certificate.subject))
        return None if name is None else Principal("User", name)


def load_tls(config: TlsConfig, material: TlsMaterial) -> LoadedTls:
    """Raises TlsConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Every connection checks its certificate against the truststore of now: no session is resumed.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    try:
        set_versions(context, config.enabled_protocols)
        set_ciphers(context, config.cipher_suites, config.enabled_protocols)
    except ValueError as error:
        raise TlsConfigError(f"listener {config.listener}: {error}") from None
    _load_keys(config, context, material.keys)
    _trust(config, context, material.trusted_pem)
    return LoadedTls(context, _read_own_certificate(config, material), material.content_hash)


def _load_keys(config: TlsConfig, context: ssl.SSLContext, keys: KeyMaterial) -> None:
    password = keys.key_password
    with _private_file(f"{keys.key_pem}\n{keys.chain_pem}\n") as path:
        try:
            # Always given: OpenSSL would ask on the terminal.
            context.load_cert_chain(path, password=password or "none")
        except (ssl.SSLError, ValueError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            setting = describe_setting(config, "ssl.keystore.*")
            raise TlsConfigError(
                f"{setting} cannot be used: the key and the first certificate do not match, or "
                f"the key's password is wrong ({reason})"
            ) from None


def _trust(config: TlsConfig, context: ssl.SSLContext, trusted_pem: str | None) -> None:
    context.verify_mode = _VERIFY[config.client_auth]
    if trusted_pem is None:
        if context.verify_mode is not ssl.CERT_NONE:
            setting = describe_setting(config, "ssl.client.auth")
            raise TlsConfigError(
                f"{setting} is {config.client_auth}, which needs ssl.truststore.location or "
                "ssl.truststore.certificates: the authorities that sign clients' certificates"
            )
        return
    # As in Java, whatever is in the truststore is trusted, also an authority below another one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=trusted_pem)
    except ssl.SSLError as error:
        setting = describe_setting(config, "ssl.truststore.*")
        raise TlsConfigError(f"{setting} has a damaged certificate ({error.reason})") from None


def _read_own_certificate(config: TlsConfig, material: TlsMaterial) -> ParsedCertificate:
    first, _, _ = material.keys.chain_pem.partition("-----END CERTIFICATE-----")
    try:
        return read_certificate(ssl.PEM_cert_to_DER_cert(f"{first}-----END CERTIFICATE-----\n"))
    except ValueError as error:
        raise TlsConfigError(f"listener {config.listener}: {error}") from None


def _parse_rules(config: TlsConfig) -> tuple[MappingRule, ...]:
    try:
        return parse_mapping_rules(config.mapping_rules)
    except BadMappingRules as error:
        setting = describe_setting(config, "ssl.principal.mapping.rules")
        raise TlsConfigError(f"{setting} {error}") from None


@contextmanager
def _private_file(text: str) -> Iterator[str]:
    """A path that only this process can read, and that is no file on a disk where the system has
    such: OpenSSL's context takes keys by path only."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("penstock-key")
        try:
            os.write(fd, text.encode())
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile("w", prefix="penstock-key-") as file:  # mode 0600
        file.write(text)
        file.flush()
        yield file.name
