"""Certificates made on the spot, used by Python's own TLS on both sides."""

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from penstock.testing.certificates import CertificateAuthority, CertificateFiles


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_server_is_trusted_by_its_hosts(
    authority: CertificateAuthority, tmp_path: Path, host: str
) -> None:
    server = authority.issue("broker").write(tmp_path)
    assert _shake_hands(server, None, trusted=authority, host=host) is None


def test_server_is_refused_by_another_name_and_by_who_trusts_another_authority(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    server = authority.issue("broker", hosts=["kafka.example.org"]).write(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        _shake_hands(server, None, trusted=authority, host="localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="verif"):
        _shake_hands(server, None, trusted=CertificateAuthority(), host="kafka.example.org")


def test_expired_server_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    server = authority.issue("broker", valid_for=timedelta(hours=-1)).write(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        _shake_hands(server, None, trusted=authority, host="localhost")


def test_client_shows_its_name(authority: CertificateAuthority, tmp_path: Path) -> None:
    server = authority.issue("broker").write(tmp_path)
    client = authority.issue("alice", organization="Shop", hosts=[]).write(tmp_path)
    subject = _shake_hands(server, client, trusted=authority, host="localhost")
    assert subject == {"commonName": "alice", "organizationName": "Shop"}


def test_key_is_encrypted_with_a_password(authority: CertificateAuthority, tmp_path: Path) -> None:
    files = authority.issue("broker").write(tmp_path, password="secret")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key, "secret")
    with pytest.raises(ssl.SSLError):
        context.load_cert_chain(files.certificate, files.key, "wrong")
    _, certificate, others = pkcs12.load_key_and_certificates(files.pkcs12.read_bytes(), b"secret")
    assert certificate is not None
    assert len(others) == 1


def test_keys_are_readable_by_their_owner_alone(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    files = authority.issue("broker").write(tmp_path)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def _shake_hands(
    server: CertificateFiles,
    client: CertificateFiles | None,
    *,
    trusted: CertificateAuthority,
    host: str,
) -> dict[str, str] | None:
    """The subject of the client's certificate, after a handshake in memory."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.pem_keystore)
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.load_verify_locations(cadata=trusted.certificate_pem.decode())
    if client is not None:
        serving.verify_mode = ssl.CERT_REQUIRED
        serving.load_verify_locations(client.authority)
        calling.load_cert_chain(client.certificate, client.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        calling.wrap_bio(to_client, to_server, server_hostname=host),
        serving.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = ends[1].getpeercert()
    if not shown:
        return None
    return {key: value for part in shown["subject"] for key, value in part}  # type: ignore
