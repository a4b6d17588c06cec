"""Keys and certificates from PEM and PKCS12, and what is said about those that cannot be used."""

import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.security.tls_files import make_tls_config

from penstock.security.key_files import TlsConfigError, read_material
from penstock.security.server_tls import ServerTls
from penstock.security.tls_config import StoreConfig, TlsConfig
from penstock.testing.certificates import CertificateAuthority

_JKS = ("-storepass", "changeit", "-keypass", "changeit", "-dname", "CN=jks", "-keyalg", "EC")


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def config(tmp_path: Path, authority: CertificateAuthority) -> TlsConfig:
    return make_tls_config(tmp_path, authority.issue("broker"), client_auth="required")


def _refusal(config: TlsConfig) -> str:
    with pytest.raises(TlsConfigError) as caught:
        ServerTls(config)
    message = str(caught.value)
    assert message.startswith("listener SSL: ")
    return message


def test_pem_files_are_used(config: TlsConfig) -> None:
    tls = ServerTls(config)
    assert len(tls.context.get_ca_certs()) == 1
    assert tls.context.cert_store_stats()["x509_ca"] == 1


def test_an_encrypted_key_needs_its_password(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    files = authority.issue("broker").write(tmp_path, "secret", password="abc")
    store = StoreConfig("keystore", "PEM", str(files.pem_keystore), None)
    config = make_tls_config(tmp_path, authority.issue("x"), keystore=store, key_password="abc")
    ServerTls(config)
    assert "ssl.key.password is not set, and the" in _refusal(replace(config, key_password=None))
    wrong = _refusal(replace(config, key_password="wrong-secret"))
    assert "the key's password is wrong" in wrong
    assert "wrong-secret" not in wrong


@pytest.mark.parametrize("configured", ["PKCS12", "JKS"])
def test_pkcs12_is_used_also_where_javas_default_type_stays(
    tmp_path: Path, authority: CertificateAuthority, configured: str
) -> None:
    files = authority.issue("broker").write(tmp_path, "broker", password="abc")
    config = make_tls_config(
        tmp_path,
        authority.issue("x"),
        keystore=StoreConfig("keystore", configured, str(files.pkcs12), "abc"),
        truststore=StoreConfig("truststore", configured, str(files.pkcs12), "abc"),
        client_auth="required",
    )
    ServerTls(config)
    store = StoreConfig("keystore", configured, str(files.pkcs12), "not it")
    assert "its password is wrong" in _refusal(replace(config, keystore=store))


def test_inline_pem_may_come_without_line_ends(
    config: TlsConfig, authority: CertificateAuthority
) -> None:
    certificate = authority.issue("inline")
    inline = replace(
        config,
        keystore=StoreConfig("keystore", "PEM", None, None),
        keystore_key=certificate.key_pem().decode().replace("\n", " "),
        keystore_certificate_chain=certificate.certificate_pem.decode().replace("\n", " "),
        truststore=StoreConfig("truststore", "PEM", None, None),
        truststore_certificates=authority.certificate_pem.decode(),
    )
    assert ServerTls(inline).certificate.subject[0][0].value.content == b"inline"
    as_jks = replace(inline, keystore=StoreConfig("keystore", "JKS", None, None))
    assert "ssl.keystore.type is JKS, but an inline key is PEM" in _refusal(as_jks)


def test_jks_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, config: TlsConfig
) -> None:
    """And the command works."""
    path = tmp_path / "server.jks"
    subprocess.run(
        ["keytool", "-genkeypair", "-keystore", path, "-storetype", "JKS", "-alias", "a", *_JKS],
        check=True,
        capture_output=True,
    )
    store = StoreConfig("keystore", "JKS", str(path), "changeit")
    refusal = _refusal(replace(config, keystore=store))
    command = refusal.partition("convert it with: ")[2].partition(";")[0].split()
    assert command[:2] == ["keytool", "-importkeystore"]
    passwords = ["-srcstorepass", "changeit", "-deststorepass", "changeit"]
    subprocess.run([*command, *passwords], check=True, capture_output=True)
    converted = StoreConfig("keystore", "PKCS12", f"{path}.p12", "changeit")
    tls = ServerTls(replace(config, keystore=converted))
    assert tls.certificate.subject[0][0].value.content == b"jks"


def test_a_key_that_does_not_match_is_refused(
    tmp_path: Path, config: TlsConfig, authority: CertificateAuthority
) -> None:
    path = tmp_path / "mixed.pem"
    path.write_bytes(authority.issue("one").key_pem() + authority.issue("two").certificate_pem)
    store = StoreConfig("keystore", "PEM", str(path), None)
    assert "do not match" in _refusal(replace(config, keystore=store))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"keystore": StoreConfig("keystore", "PEM", None, None)}, "ssl.keystore.location is not"),
        (
            {"keystore": StoreConfig("keystore", "PEM", "/nowhere", None)},
            "ssl.keystore.location /nowhere cannot be read",
        ),
        ({"keystore_key": "x"}, "ssl.keystore.location excludes ssl.keystore.key"),
        ({"truststore_certificates": "x"}, "excludes ssl.truststore.certificates"),
        (
            {"truststore": StoreConfig("truststore", "PEM", None, None)},
            "ssl.client.auth is required, which needs ssl.truststore.location",
        ),
        ({"enabled_protocols": ("TLSv1.1", "TLSv1.2")}, "ssl.enabled.protocols TLSv1.1: only"),
        ({"enabled_protocols": ()}, "ssl.enabled.protocols is empty"),
        ({"cipher_suites": ("TLS_RSA_WITH_RC4_128_SHA",)}, "RC4_128_SHA: not served; choose from"),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",)}, "cannot choose among those of TLS 1.3"),
        ({"mapping_rules": "RULE:(/x/"}, "ssl.principal.mapping.rules '(' is not a pattern"),
    ],
)
def test_what_cannot_work_refuses_the_start(
    config: TlsConfig, changes: dict[str, Any], expected: str
) -> None:
    assert expected in _refusal(replace(config, **changes))


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x30\x03\x02\x01\x03", b"\xff" * 50])
@pytest.mark.parametrize("type_name", ["PEM", "PKCS12", "BCFKS"])
def test_a_damaged_file_is_named(
    tmp_path: Path, config: TlsConfig, content: bytes, type_name: str
) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(content)
    for kind in ("keystore", "truststore"):
        changes: dict[str, Any] = {kind: StoreConfig(kind, type_name, str(path), "abc")}
        assert f"ssl.{kind}." in _refusal(replace(config, **changes))


def test_one_cipher_suite_can_be_chosen(config: TlsConfig) -> None:
    chosen = replace(
        config,
        enabled_protocols=("TLSv1.2",),
        cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",),
    )
    names = [cipher["name"] for cipher in ServerTls(chosen).context.get_ciphers()]
    assert [name for name in names if not name.startswith("TLS_")] == [
        "ECDHE-ECDSA-AES256-GCM-SHA384"
    ]


def test_no_secret_is_in_a_repr(config: TlsConfig) -> None:
    secret = replace(config, keystore_key="SECRET", key_password="SECRET")
    secret = replace(secret, keystore=replace(config.keystore, password="SECRET"))
    assert "SECRET" not in repr(secret)
    material = read_material(config)
    assert "PRIVATE" not in f"{material!r} {material.keys!r}"


def test_the_certificate_in_use_says_when_it_expires(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    certificate = authority.issue("old", valid_for=timedelta(days=-1))
    parsed = ServerTls(make_tls_config(tmp_path, certificate)).certificate
    assert parsed.not_before_s < parsed.not_after_s
    from cryptography.x509 import load_pem_x509_certificate

    expected = load_pem_x509_certificate(certificate.certificate_pem)
    assert parsed.not_after_s == expected.not_valid_after_utc.timestamp()
    assert parsed.not_before_s == expected.not_valid_before_utc.timestamp()
