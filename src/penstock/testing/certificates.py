"""Certificates made on the spot, for tests with TLS: an authority, servers and clients.

Not for production: the authority's key lives in this process alone, and no list says what is
revoked. Needs the extra `security`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_VALID_FOR = timedelta(days=2)
_CLOCKS_DIFFER_BY = timedelta(minutes=10)


class SecurityExtraMissing(ImportError):
    """Certificates need the extra `security`."""


class CertificateFiles(NamedTuple):
    """Paths of one certificate's files, as `ssl.*.location` takes them."""

    certificate: Path  # PEM: the certificate
    key: Path  # PEM (PKCS 8); encrypted if it was written with a password
    authority: Path  # PEM: the authority's certificate
    pem_keystore: Path  # PEM: key and certificate in one file, as Kafka's ssl.keystore.type=PEM
    pkcs12: Path  # key, certificate and authority, encrypted with the password or "changeit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and its key."""

    common_name: str
    certificate_pem: bytes
    authority_pem: bytes
    _key: Any = field(repr=False)
    _certificate: Any = field(repr=False)
    _authority: Any = field(repr=False)

    def key_pem(self, password: str | None = None) -> bytes:
        """The key in PKCS 8, encrypted if there is a password."""
        from cryptography.hazmat.primitives import serialization as form

        pem: bytes = self._key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, _encryption(password)
        )
        return pem

    def pkcs12(self, password: str) -> bytes:
        """A key store that Java and OpenSSL read."""
        from cryptography.hazmat.primitives.serialization import pkcs12

        store: bytes = pkcs12.serialize_key_and_certificates(
            self.common_name.encode(),
            self._key,
            self._certificate,
            [self._authority],
            _encryption(password),
        )
        return store

    def write(
        self, directory: Path, name: str | None = None, *, password: str | None = None
    ) -> CertificateFiles:
        """Write all files of it, readable by their owner alone; the same name replaces them."""
        directory.mkdir(parents=True, exist_ok=True)
        stem = name or self.common_name
        files = CertificateFiles(
            certificate=directory / f"{stem}.crt.pem",
            key=directory / f"{stem}.key.pem",
            authority=directory / f"{stem}.ca.pem",
            pem_keystore=directory / f"{stem}.keystore.pem",
            pkcs12=directory / f"{stem}.p12",
        )
        key = self.key_pem(password)
        _write(files.certificate, self.certificate_pem)
        _write(files.key, key)
        _write(files.authority, self.authority_pem)
        _write(files.pem_keystore, key + self.certificate_pem)
        _write(files.pkcs12, self.pkcs12(password or "changeit"))
        return files


class CertificateAuthority:
    """Issues certificates that are trusted by who trusts `certificate_pem`."""

    def __init__(self, common_name: str = "Penstock test authority") -> None:
        _require_extra()
        from cryptography.hazmat.primitives import serialization as form

        self._key = _new_key()
        self._certificate = self._sign_own(_subject(common_name, None))
        self.certificate_pem: bytes = self._certificate.public_bytes(form.Encoding.PEM)

    def issue(
        self,
        common_name: str,
        *,
        hosts: Sequence[str] = LOOPBACK_HOSTS,
        organization: str | None = None,
        valid_for: timedelta = _VALID_FOR,
        for_servers: bool = True,
        for_clients: bool = True,
    ) -> Certificate:
        """A certificate with these hosts as alternative names. A negative `valid_for` makes one
        that has expired."""
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.hashes import SHA256

        key = _new_key()
        subject = _subject(common_name, organization)
        builder = _builder(subject, self._certificate.subject, key.public_key(), valid_for)
        for extension, critical in _leaf_extensions(hosts, for_servers, for_clients):
            builder = builder.add_extension(extension, critical)
        builder = builder.add_extension(_identity_of(self._key), critical=False)
        signed = builder.sign(self._key, SHA256())
        return Certificate(
            common_name=common_name,
            certificate_pem=signed.public_bytes(form.Encoding.PEM),
            authority_pem=self.certificate_pem,
            _key=key,
            _certificate=signed,
            _authority=self._certificate,
        )

    def _sign_own(self, subject: "x509.Name") -> Any:
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256

        public_key = self._key.public_key()
        usage = _key_usage(signs_certificates=True)
        return (
            _builder(subject, subject, public_key, _VALID_FOR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .sign(self._key, SHA256())
        )


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _subject(common_name: str, organization: str | None) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    named = [(NameOID.COMMON_NAME, common_name), (NameOID.ORGANIZATION_NAME, organization)]
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in named if value])


def _builder(
    subject: "x509.Name", issuer: "x509.Name", public_key: Any, valid_for: timedelta
) -> Any:
    from cryptography import x509

    now = datetime.now(UTC)
    starts = min(now, now + valid_for) - _CLOCKS_DIFFER_BY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(now + valid_for)
    )


def _leaf_extensions(
    hosts: Sequence[str], for_servers: bool, for_clients: bool
) -> list[tuple[Any, bool]]:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    usages = [ExtendedKeyUsageOID.SERVER_AUTH] * for_servers
    usages += [ExtendedKeyUsageOID.CLIENT_AUTH] * for_clients
    extensions: list[tuple[Any, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage(usages), False),
    ]
    if hosts:
        names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
        extensions.append((names, False))
    return extensions


def _alternative_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _identity_of(key: Any) -> Any:
    from cryptography import x509

    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _encryption(password: str | None) -> Any:
    from cryptography.hazmat.primitives import serialization as form

    if password is None:
        return form.NoEncryption()
    return form.BestAvailableEncryption(password.encode())


def _write(path: Path, content: bytes) -> None:
    """In one step, so that a reader finds the old content or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def _require_extra() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise SecurityExtraMissing(
            f"certificates need the extra security ({error}): pip install 'penstock[security]'"
        ) from error
