"""Builds a client's TLS context, anew when its files have changed.

Invariant: brokers' certificates and host names are checked unless a setting says not to.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import ClientTls
from penstock.client.security.key_stores import ClientKeys, read_client_keys

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsContexts:
    """One client's context. Files are read for every new connection, so that a rotated certificate
    is used without a restart; where the new files cannot be used, the old ones stay in use."""

    __slots__ = ("_context", "_keys", "_tls")

    def __init__(self, tls: ClientTls) -> None:
        """Reads nothing yet."""
        self._tls = tls
        self._keys: ClientKeys | None = None
        self._context: ssl.SSLContext | None = None

    def get(self) -> ssl.SSLContext:
        """Raises InvalidClientConfig, unless there is a context."""
        try:
            keys = read_client_keys(self._tls)
            if self._context is None or keys != self._keys:
                self._context, self._keys = make_context(self._tls, keys), keys
        except InvalidClientConfig:
            if self._context is None:
                raise
        return self._context


def make_context(tls: ClientTls, keys: ClientKeys) -> ssl.SSLContext:
    """Raises InvalidClientConfig."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which checks certificates and host names
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.minimum_version = min(_VERSIONS[version] for version in tls.versions)
    context.maximum_version = max(_VERSIONS[version] for version in tls.versions)
    context.check_hostname = tls.checks_hosts and tls.verifies_brokers
    if not tls.verifies_brokers:
        context.verify_mode = ssl.CERT_NONE
    if tls.ciphers is not None:
        _set_ciphers(context, tls.ciphers)
    _trust(context, tls, keys)
    if keys.identity_pem is not None:
        _show(context, keys.identity_pem, keys.key_password, tls.key_password_setting)
    return context


def _set_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        raise InvalidClientConfig(
            f"ssl.cipher.suites={ciphers[:200]}: OpenSSL knows none of these; "
            "`openssl ciphers` lists them"
        ) from None


def _trust(context: ssl.SSLContext, tls: ClientTls, keys: ClientKeys) -> None:
    if keys.trusted_pem is None:
        context.load_default_certs()
    else:
        # As with Java and librdkafka, an authority below another one may be trusted alone.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        setting = tls.trusted.setting if tls.trusted else "ssl.ca.location"
        _load(context, keys.trusted_pem, setting)
    if keys.revoked_pem is not None:
        with private_file(keys.revoked_pem) as path:
            context.load_verify_locations(path)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load(context: ssl.SSLContext, pem: str, setting: str) -> None:
    try:
        context.load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise InvalidClientConfig(f"{setting}: a certificate is damaged ({error.reason})") from None


def _show(context: ssl.SSLContext, identity_pem: str, password: str | None, setting: str) -> None:
    with private_file(identity_pem) as path:
        try:
            # A password is always given, or OpenSSL would ask on the terminal.
            context.load_cert_chain(path, password=password or "none")
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or "not a PEM file"
            raise InvalidClientConfig(
                "the client's key and certificate cannot be used: they do not match, or "
                f"{setting} is wrong ({reason})"
            ) from None


@contextmanager
def private_file(text: str) -> Iterator[str]:
    """A path that only this process can read, and that is on no disk where the system has such:
    OpenSSL takes keys by path only."""
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
