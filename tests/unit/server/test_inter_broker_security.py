"""How brokers log in at each other, by Kafka's settings; what would not work refuses the start."""

from pathlib import Path

import pytest

from penstock.client.security.config import PLAINTEXT, ClientSecurity
from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.server.errors import StartRefused
from penstock.server.inter_broker_security import inter_broker_security
from penstock.testing.certificates import CertificateAuthority


def security_of(settings: dict[str, str]) -> ClientSecurity:
    return inter_broker_security(resolve_broker(RawConfig.from_mapping(settings, where="test")))


def test_brokers_talk_plaintext_where_nothing_else_is_configured() -> None:
    assert security_of({}) is PLAINTEXT


def test_brokers_show_the_keys_of_the_inter_broker_listener(tmp_path: Path) -> None:
    files = CertificateAuthority().issue("broker").write(tmp_path)
    security = security_of(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SSL",
            "inter.broker.listener.name": "IN",
            "listener.name.in.ssl.keystore.location": str(files.pkcs12),
            "listener.name.in.ssl.keystore.password": "changeit",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.authority),
        }
    )
    assert security.tls is not None
    assert security.tls.certificate is not None
    assert security.tls.trusted is not None
    assert security.tls.certificate.location == str(files.pkcs12)
    assert security.tls.trusted.location == str(files.authority)
    assert security.tls.checks_hosts


def test_keys_that_cannot_be_used_refuse_the_start() -> None:
    with pytest.raises(StartRefused, match=r"on listener SSL: ssl\.keystore\.location: /nowhere"):
        security_of(
            {
                "listeners": "SSL://127.0.0.1:9093",
                "security.inter.broker.protocol": "SSL",
                "ssl.keystore.location": "/nowhere/broker.p12",
            }
        )
