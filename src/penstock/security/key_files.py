"""Reads keys and certificates from PEM and PKCS12, in files or inline. It builds no TLS context.

JKS is refused with the command that converts it. Secrets stay in memory.
"""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from penstock.security.tls_config import StoreConfig, TlsConfig

_JKS_MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_DER_SEQUENCE = b"\x30"
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", re.ASCII | re.DOTALL
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.+?-----END (?P=kind)-----", re.ASCII | re.DOTALL
)
_WITHOUT_LINES = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)\s*(.*?)\s*(-----END [A-Z0-9 ]+-----)")


class TlsConfigError(ValueError):
    """TLS cannot work with these settings or files; the message says which and what next."""


class KeyMaterial(NamedTuple):
    key_pem: str
    chain_pem: str  # the broker's certificate first
    key_password: str | None

    def __repr__(self) -> str:
        return "KeyMaterial(...)"  # never in a log or a traceback


class TlsMaterial(NamedTuple):
    keys: KeyMaterial
    trusted_pem: str | None  # None: no truststore
    content_hash: bytes  # of all that was read

    def __repr__(self) -> str:
        return f"TlsMaterial({self.content_hash.hex()[:8]})"


def read_material(config: TlsConfig) -> TlsMaterial:
    """Raises TlsConfigError."""
    digest = hashlib.sha256()
    keys = _read_keys(config, digest)
    trusted = _read_trusted(config, digest)
    return TlsMaterial(keys, trusted, digest.digest())


def describe_setting(config: TlsConfig, name: str) -> str:
    return f"listener {config.listener}: {name}"


def _read_keys(config: TlsConfig, digest: "hashlib._Hash") -> KeyMaterial:
    store = config.keystore
    if store.location is not None:
        if config.keystore_key or config.keystore_certificate_chain:
            raise _error(config, "ssl.keystore.location", "excludes ssl.keystore.key; give one")
        data = _read_file(config, store)
        digest.update(data)
        if _find_format(config, store, data) == "PKCS12":
            return _read_pkcs12_keys(config, store, data)
        return _split_pem(config, _decode_pem(config, store, data), "ssl.keystore.location")
    key, chain = config.keystore_key, config.keystore_certificate_chain
    if key is None or chain is None:
        missing = "ssl.keystore.location" if key is None else "ssl.keystore.certificate.chain"
        raise _error(config, missing, "is not set: TLS needs the broker's key and its certificates")
    if store.type != "PEM":
        raise _error(config, "ssl.keystore.type", f"is {store.type}, but an inline key is PEM")
    digest.update(key.encode() + chain.encode())
    return _split_pem(
        config,
        f"{_with_lines(key)}\n{_with_lines(chain)}",
        "ssl.keystore.key with its certificate.chain",
    )


def _read_trusted(config: TlsConfig, digest: "hashlib._Hash") -> str | None:
    store, inline = config.truststore, config.truststore_certificates
    if store.location is not None:
        if inline is not None:
            raise _error(
                config, "ssl.truststore.location", "excludes ssl.truststore.certificates; give one"
            )
        data = _read_file(config, store)
        digest.update(data)
        if _find_format(config, store, data) == "PKCS12":
            return _read_pkcs12_certificates(config, store, data)
        return _join_certificates(
            config, _decode_pem(config, store, data), "ssl.truststore.location"
        )
    if inline is None:
        return None
    if store.type != "PEM":
        raise _error(config, "ssl.truststore.type", f"is {store.type}, but inline text is PEM")
    digest.update(inline.encode())
    return _join_certificates(config, _with_lines(inline), "ssl.truststore.certificates")


def _read_file(config: TlsConfig, store: StoreConfig) -> bytes:
    assert store.location is not None
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise _error(
            config, f"ssl.{store.kind}.location", f"{store.location} cannot be read: {error}"
        ) from None


def _find_format(config: TlsConfig, store: StoreConfig, data: bytes) -> str:
    """Java reads PKCS12 where JKS is configured, which is the default of the type and the format
    that its keytool writes."""
    name, location = f"ssl.{store.kind}.location", store.location
    java_format = _JKS_MAGIC.get(data[:4])
    if java_format is not None:
        raise _error(
            config,
            name,
            f"{location} is a {java_format} file, which is not read here; convert it with: "
            f"keytool -importkeystore -srckeystore {location} -srcstoretype {java_format} "
            f"-destkeystore {location}.p12 -deststoretype PKCS12; then set {name}={location}.p12 "
            f"and ssl.{store.kind}.type=PKCS12",
        )
    if store.type == "PEM":
        return "PEM"
    if store.type not in ("JKS", "PKCS12"):
        raise _error(
            config, f"ssl.{store.kind}.type", f"{store.type} is not read here; use PEM or PKCS12"
        )
    if data.startswith(_DER_SEQUENCE):
        return "PKCS12"
    hint = f"; set ssl.{store.kind}.type=PEM" if b"-----BEGIN " in data else ""
    raise _error(config, name, f"{location} is not a PKCS12 file{hint}")


def _decode_pem(config: TlsConfig, store: StoreConfig, data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise _error(
            config, f"ssl.{store.kind}.location", f"{store.location} is not a PEM file"
        ) from None


def _split_pem(config: TlsConfig, text: str, name: str) -> KeyMaterial:
    keys, certificates = _PRIVATE_KEY.search(text), _CERTIFICATE.findall(text)
    if keys is None or not certificates:
        missing = "private key" if keys is None else "certificate"
        raise _error(config, name, f"has no {missing} in PEM")
    is_encrypted = "ENCRYPTED" in keys[0]
    if is_encrypted and config.key_password is None:
        raise _error(config, "ssl.key.password", "is not set, and the private key is encrypted")
    return KeyMaterial(
        keys[0], "\n".join(certificates), config.key_password if is_encrypted else None
    )


def _join_certificates(config: TlsConfig, text: str, name: str) -> str:
    certificates = _CERTIFICATE.findall(text)
    if not certificates:
        raise _error(config, name, "has no certificate in PEM")
    return "\n".join(certificates)


def _with_lines(text: str) -> str:
    """A value of a properties file has no line ends, which PEM needs behind its first line."""
    return _WITHOUT_LINES.sub(_add_lines, text)


def _add_lines(match: re.Match[str]) -> str:
    head, body, tail = match.groups()
    return "\n".join((head, *body.split(), tail)) + "\n"


def _read_pkcs12_keys(config: TlsConfig, store: StoreConfig, data: bytes) -> KeyMaterial:
    from penstock.security.pkcs12 import read_keys

    try:
        key_pem, certificates = read_keys(data, store.password)
    except ValueError as error:
        raise _pkcs12_error(config, store, error) from None
    return KeyMaterial(key_pem, certificates, None)


def _read_pkcs12_certificates(config: TlsConfig, store: StoreConfig, data: bytes) -> str:
    from penstock.security.pkcs12 import read_certificates

    try:
        return read_certificates(data, store.password)
    except ValueError as error:
        raise _pkcs12_error(config, store, error) from None


def _pkcs12_error(config: TlsConfig, store: StoreConfig, error: ValueError) -> TlsConfigError:
    return _error(config, f"ssl.{store.kind}.location", f"{store.location}: {error}")


def _error(config: TlsConfig, name: str, message: str) -> TlsConfigError:
    return TlsConfigError(f"{describe_setting(config, name)} {message}")
