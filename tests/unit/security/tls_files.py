"""A TLS config of a listener whose keys are issued for a test."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.security.server_tls import ServerTls
from penstock.security.tls_config import StoreConfig, TlsConfig
from penstock.testing.certificates import Certificate, CertificateAuthority


def make_tls_config(folder: Path, certificate: Certificate, **changes: Any) -> TlsConfig:
    """PEM files, no certificates of clients; `changes` replaces fields."""
    files = certificate.write(folder, "server")
    config = TlsConfig(
        listener="SSL",
        keystore=StoreConfig("keystore", "PEM", str(files.pem_keystore), None),
        keystore_key=None,
        keystore_certificate_chain=None,
        key_password=None,
        truststore=StoreConfig("truststore", "PEM", str(files.authority), None),
        truststore_certificates=None,
        client_auth="none",
        enabled_protocols=("TLSv1.2", "TLSv1.3"),
        cipher_suites=(),
        mapping_rules="DEFAULT",
        allow_dn_changes=False,
        allow_san_changes=False,
    )
    return replace(config, **changes)


def make_server_tls(folder: Path, authority: CertificateAuthority, **changes: Any) -> ServerTls:
    return ServerTls(make_tls_config(folder, authority.issue("broker"), **changes))
