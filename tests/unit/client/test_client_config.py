"""Client config files, secrets that are elsewhere, and librdkafka's form of a client's security."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.client_config import read_client_config
from penstock.client.errors import InvalidClientConfig
from penstock.client.security.properties import parse_client_security
from penstock.client.security.rdkafka_security import rdkafka_security, translate_security
from penstock.testing.certificates import CertificateAuthority

SECRET = "s3cr3t-pa55word"
LOGIN = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanisms": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": SECRET,
}
NOBODY = "127.0.0.1:1"


def write(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def test_file_has_addresses_and_security(tmp_path: Path) -> None:
    file = write(tmp_path / "c", {**LOGIN, "bootstrap.servers": "a:1,b:2", "client.id": "x"})
    config = read_client_config(file)
    assert config.bootstrap == "a:1,b:2"
    assert config.security == parse_client_security(LOGIN)
    assert config.settings == LOGIN
    assert SECRET not in repr(config)


def test_secrets_come_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_PASSWORD", SECRET)
    (tmp_path / "password").write_text(f"{SECRET}\n")
    for reference in ("${env:PENSTOCK_TEST_PASSWORD}", f"${{file:{tmp_path}/password}}"):
        file = write(tmp_path / "c", {**LOGIN, "sasl.password": reference})
        assert read_client_config(file).security == parse_client_security(LOGIN)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sasl.password": "${env:PENSTOCK_TEST_NOTHING}"}, "PENSTOCK_TEST_NOTHING is not set"),
        ({"sasl.password": "${file:/nowhere/password}"}, "/nowhere/password cannot be read"),
        ({"securty.protocol": "ssl"}, "securty.protocol: unknown"),
        ({"acks": "all"}, "not a setting of connections"),
        ({"sasl.username": "alice"}, "not in effect"),
    ],
)
def test_file_that_cannot_be_in_effect_is_refused(
    tmp_path: Path, settings: Mapping[str, str], message: str
) -> None:
    file = write(tmp_path / "c", settings)
    with pytest.raises(InvalidClientConfig, match=message):
        read_client_config(file)


def test_file_that_says_something_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c"
    file.write_text("security.protocol=ssl\nsecurity.protocol=plaintext\n")
    with pytest.raises(InvalidClientConfig, match="already set"):
        read_client_config(file)


def test_clients_refuse_security_that_would_not_be_in_effect() -> None:
    config = {"ssl.ca.location": "/ca.pem"}
    for make in (
        lambda: penstock.Producer(NOBODY, config=config),
        lambda: penstock.Consumer("t", bootstrap_servers=NOBODY, config=config),
        lambda: penstock.Admin(NOBODY, config=config),
        lambda: penstock.TransactionalProducer(NOBODY, transactional_id="x", config=config),
    ):
        with pytest.raises(InvalidClientConfig, match="not in effect"):
            make()


def test_admin_refuses_names_that_are_not_its_own() -> None:
    async def make() -> None:
        penstock.AsyncAdmin(NOBODY, config={"securty.protocol": "ssl"})

    with pytest.raises(InvalidClientConfig, match="unknown"):
        asyncio.run(make())


def test_javas_names_become_librdkafkas(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    files = authority.issue("alice").write(tmp_path)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    translated = translate_security(
        {
            "client.id": "x",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{module} required username="alice" password="{SECRET}";',
            "ssl.truststore.location": str(files.authority),
            "ssl.keystore.location": str(files.pkcs12),
            "ssl.keystore.password": "changeit",
        }
    )
    assert translated == {
        "client.id": "x",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.ca.location": str(files.authority),
        "ssl.keystore.location": str(files.pkcs12),
        "ssl.keystore.password": "changeit",
        "ssl.endpoint.identification.algorithm": "https",
        "enable.ssl.certificate.verification": True,
    }


def test_librdkafka_takes_what_it_is_given(tmp_path: Path) -> None:
    from confluent_kafka import Consumer

    authority = CertificateAuthority()
    plain = authority.issue("alice").write(tmp_path / "plain")
    locked = authority.issue("alice").write(tmp_path / "locked", password="secret")
    trust = {"security.protocol": "ssl", "ssl.ca.pem": authority.certificate_pem.decode()}
    oauth = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
    cases: list[dict[str, Any]] = [
        LOGIN,
        trust,
        {**trust, "ssl.certificate.location": str(plain.certificate)}
        | {"ssl.key.location": str(plain.key)},
        {**trust, "ssl.keystore.location": str(locked.pem_keystore), "ssl.key.password": "secret"},
        {**trust, "ssl.keystore.key": plain.key.read_text()}
        | {"ssl.keystore.certificate.chain": plain.certificate.read_text()},
        {**trust, "ssl.keystore.location": str(plain.pkcs12), "ssl.keystore.password": "changeit"},
        {**oauth, "oauth_cb": lambda _: ("token", 1e12)},
        {**oauth, "enable.sasl.oauthbearer.unsecure.jwt": True}
        | {"sasl.oauthbearer.config": "principal=alice lifeSeconds=60"},
    ]
    for settings in cases:
        translated = translate_security(settings)
        Consumer({"bootstrap.servers": NOBODY, "group.id": "g", **translated}).close()
        again = parse_client_security(translated)
        assert rdkafka_security(again) == translated


def test_what_librdkafka_cannot_do_is_refused() -> None:
    with pytest.raises(InvalidClientConfig, match="not supported by librdkafka"):
        translate_security({"security.protocol": "ssl", "ssl.enabled.protocols": "TLSv1.3"})
