"""Reads PKCS12 with the package `cryptography`, which is imported here and nowhere else in the
broker.

Raises ValueError with what to do. The result is PEM in memory.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates


def read_keys(data: bytes, password: str | None) -> tuple[str, str]:
    """The private key, and its certificate with those of its authorities."""
    loaded = _load(data, password)
    from cryptography.hazmat.primitives import serialization

    if loaded.key is None or loaded.cert is None:
        raise ValueError("it has no private key with its certificate")
    key = loaded.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return key.decode(), _certificates(loaded)


def read_certificates(data: bytes, password: str | None) -> str:
    """All certificates, as a truststore has them."""
    certificates = _certificates(_load(data, password))
    if not certificates:
        raise ValueError("it has no certificate")
    return certificates


def _load(data: bytes, password: str | None) -> "PKCS12KeyAndCertificates":
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ValueError(
            "PKCS12 needs the extra security (pip install 'penstock[security]'), or convert the "
            "file to PEM with: openssl pkcs12 -in FILE -out FILE.pem"
        ) from None
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ValueError("it is damaged, or its password is wrong") from None


def _certificates(loaded: "PKCS12KeyAndCertificates") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    own = [] if loaded.cert is None else [loaded.cert]
    pems = [
        entry.certificate.public_bytes(Encoding.PEM) for entry in (*own, *loaded.additional_certs)
    ]
    return b"".join(pems).decode()
