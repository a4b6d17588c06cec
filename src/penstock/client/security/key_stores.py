"""Reads a client's certificates and keys, from PEM or PKCS12, in files or inline.

It builds no TLS context. JKS is refused with the command that converts it.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import ClientTls, KeyStoreSource

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = b"\x30"
_BLOCK = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----\s*(?P<body>.*?)\s*-----END (?P=label)-----", re.DOTALL
)
_LINE = 64
_MAX_BYTES = 16 * 1024 * 1024  # the system's bundle of authorities has 200 KiB


class ClientKeys(NamedTuple):
    """What a client shows and trusts, as PEM."""

    identity_pem: str | None  # the key and its certificates; None: nothing is shown
    key_password: str | None
    trusted_pem: str | None  # None: the system's authorities
    revoked_pem: str | None

    def __repr__(self) -> str:
        return "ClientKeys(...)"  # never in a log or a traceback


def read_client_keys(tls: ClientTls) -> ClientKeys:
    """Raises InvalidClientConfig."""
    identity, needs_password = _read_identity(tls)
    return ClientKeys(
        identity,
        tls.key_password if needs_password else None,
        None if tls.trusted is None else read_trusted(tls.trusted),
        None if tls.revoked_location is None else _read_revoked(tls.revoked_location),
    )


def read_trusted(source: KeyStoreSource) -> str:
    """The certificates of a file, of a directory of PEM files, or of a text."""
    if source.location is not None and Path(source.location).is_dir():
        return _read_directory(source, Path(source.location))
    content = _read(source)
    if isinstance(content, bytes):
        _, certificates = _open_pkcs12(source, content)
    else:
        certificates = _blocks(content, "CERTIFICATE")
    return _require(source, "certificate", "".join(certificates))


def is_pkcs12(source: KeyStoreSource) -> bool:
    return isinstance(_read(source), bytes) if source.location is not None else False


def _read_identity(tls: ClientTls) -> tuple[str | None, bool]:
    """The key and its certificates, and whether the key is encrypted."""
    if tls.certificate is None:
        return None, False
    content = _read(tls.certificate)
    if isinstance(content, bytes):
        keys, certificates = _open_pkcs12(tls.certificate, content)
        if tls.key is not None:
            raise InvalidClientConfig(
                f"{tls.certificate.setting} is a PKCS12 file, which holds the key, too: set "
                "ssl.keystore.location in place of the certificate and the key"
            )
    else:
        key_source = tls.key or tls.certificate
        key_text = content if tls.key is None else _read(tls.key)
        if isinstance(key_text, bytes):
            raise InvalidClientConfig(f"{key_source.setting}: write the key as PEM")
        keys, certificates = _blocks(key_text, "PRIVATE KEY"), _blocks(content, "CERTIFICATE")
        _require(key_source, "private key", "".join(keys))
    _require(tls.certificate, "certificate", "".join(certificates))
    is_encrypted = "ENCRYPTED" in keys[0]
    if is_encrypted and tls.key_password is None:
        raise InvalidClientConfig(
            f"{tls.key_password_setting} is not set, and the private key is encrypted"
        )
    return keys[0] + "".join(certificates), is_encrypted


def _read_revoked(location: str) -> str:
    source = KeyStoreSource(setting="ssl.crl.location", location=location)
    content = _read(source)
    blocks = [] if isinstance(content, bytes) else _blocks(content, "X509 CRL")
    return _require(source, "list of revoked certificates", "".join(blocks))


def _read_directory(source: KeyStoreSource, directory: Path) -> str:
    """OpenSSL reads only files with names that are hashes; here all of them count."""
    texts = []
    for path in sorted(directory.iterdir()):
        if path.suffix in (".pem", ".crt", ".cer", ".0") and path.is_file():
            content = _read(KeyStoreSource(setting=source.setting, location=str(path)))
            if isinstance(content, str):
                texts += _blocks(content, "CERTIFICATE")
    return _require(source, "certificate", "".join(dict.fromkeys(texts)))


def _read(source: KeyStoreSource) -> str | bytes:
    """PEM as text, PKCS12 as bytes."""
    if source.location is None:
        assert source.pem is not None
        return source.pem
    try:
        with Path(source.location).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _error(source, f"cannot be read ({reason})") from None
    if content.startswith(_JKS_MAGIC):
        raise _error(
            source,
            "is a JKS file, which is not read here; convert it with: keytool -importkeystore "
            f"-srckeystore {source.location} -destkeystore {source.location}.p12 "
            "-deststoretype PKCS12",
        )
    if len(content) > _MAX_BYTES:
        raise _error(source, f"has more than {_MAX_BYTES} bytes")
    if content.startswith(_DER_SEQUENCE):
        return content
    return content.decode("latin-1")  # comments in any encoding, blocks in ASCII


def _blocks(text: str, kind: str) -> list[str]:
    """The PEM blocks of this kind, with the line ends that a properties file loses."""
    return [
        _with_lines(match["label"], match["body"])
        for match in _BLOCK.finditer(text)
        if match["label"].endswith(kind)
    ]


def _with_lines(label: str, body: str) -> str:
    if ":" in body:  # a key that is encrypted in the old way, with headers: as it is
        lines = body.splitlines()
    else:
        joined = "".join(body.split())
        lines = [joined[start : start + _LINE] for start in range(0, len(joined), _LINE)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def _open_pkcs12(source: KeyStoreSource, content: bytes) -> tuple[list[str], list[str]]:
    """Keys and certificates in PEM, the key's own certificate first."""
    try:
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise _error(
            source,
            "is a PKCS12 file, which needs the extra security: pip install 'penstock[security]'; "
            "or convert it: openssl pkcs12 -nodes -in FILE -out FILE.pem",
        ) from None
    password = None if source.password is None else source.password.encode()
    try:
        store: Any = pkcs12.load_pkcs12(content, password)
    except ValueError:
        raise _error(source, "is damaged, or its password is wrong") from None
    keys = []
    if store.key is not None:
        pem: bytes = store.key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        keys = [pem.decode()]
    own = [store.cert] if store.cert is not None else []
    certificates = [
        str(entry.certificate.public_bytes(form.Encoding.PEM).decode())
        for entry in (*own, *store.additional_certs)
    ]
    if source.setting.endswith("ssl.keystore.location"):
        _require(source, "private key", "".join(keys))
    return keys, certificates


def _require(source: KeyStoreSource, what: str, content: str) -> str:
    if not content:
        raise _error(source, f"has no {what} in PEM or PKCS12")
    return content


def _error(source: KeyStoreSource, text: str) -> InvalidClientConfig:
    where = source.location or "the text"
    return InvalidClientConfig(f"{source.setting}: {where} {text}")
