"""`penstock.Broker(security=...)`: clients and the command line reach it by its client config."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

import penstock
from penstock.testing.certificates import CertificateAuthority

pytestmark = pytest.mark.xdist_group("tls")
_WAIT_S = 120
_REFUSED_S = 5.0  # plaintext is tried again until then


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker(security="tls") as broker:
        broker.create_topic("orders", config={"penstock.delayed.messages": "true"})
        yield broker


def run(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        env={**os.environ, **environment},
        check=False,
    )


def test_producer_consumer_and_admin_take_its_client_config(broker: penstock.Broker) -> None:
    config, servers = broker.client_config, broker.bootstrap_servers
    with penstock.Admin(servers, config=config) as admin:
        admin.create_topics(penstock.NewTopic("bills"))
        assert "bills" in {topic.name for topic in admin.list_topics()}
    with penstock.Producer(servers, config=config) as producer:
        producer.send_and_wait("bills", b"one")
        producer.send_and_wait("orders", b"later", delay_s=3600, delay_id="x")
        assert producer.cancel("orders", "x") == "cancelled"  # by the raw client
    with penstock.TransactionalProducer(
        servers, transactional_id="billing", config=config
    ) as transactional:
        transactional.begin()
        transactional.send("bills", b"two")
        transactional.commit()
    with penstock.Consumer(
        "bills", bootstrap_servers=servers, from_beginning=True, config=config, timeout_s=_WAIT_S
    ) as consumer:
        messages = iter(consumer)
        assert [next(messages).value for _ in range(2)] == [b"one", b"two"]


def test_half_messages_take_its_client_config(broker: penstock.Broker) -> None:
    config, servers = broker.client_config, broker.bootstrap_servers
    for name in ("sales", "till.half.checks", "sales.half.expired"):
        broker.create_topic(name)
    for name in ("sales.half", "sales.half.decisions"):
        broker.create_topic(name, config={"penstock.half.groups": "till"})
    with penstock.HalfMessages(
        "sales", bootstrap_servers=servers, group="till", check=lambda _: "unknown", config=config
    ) as half:
        half.send(b"one", local=lambda: "commit")
    with penstock.Consumer(
        "sales", bootstrap_servers=servers, from_beginning=True, config=config, timeout_s=_WAIT_S
    ) as consumer:
        assert next(iter(consumer)).value == b"one"


def test_confluent_kafka_takes_its_client_config(broker: penstock.Broker) -> None:
    consumer = Consumer({**broker.client_config, "group.id": "confluent"})
    try:
        assert "orders" in consumer.list_topics(timeout=_WAIT_S).topics
    finally:
        consumer.close()


def test_command_line_takes_its_client_config(broker: penstock.Broker) -> None:
    option = ("--client-config", str(broker.client_config_file))
    assert run("topic", "create", "lines", *option).returncode == 0
    produced = run("produce", "lines", *option, text="one\ntwo\n")
    assert produced.returncode == 0, produced.stderr
    consumed = run("consume", "lines", "--from-beginning", "--max-messages", "2", *option)
    assert consumed.stdout.split() == ["one", "two"], consumed.stderr
    listed = run("topic", "list", "--json", PENSTOCK_CLIENT_CONFIG=option[1])
    assert "lines" in {topic["name"] for topic in json.loads(listed.stdout)}


def test_nobody_gets_in_without_a_certificate_of_its_authority(broker: penstock.Broker) -> None:
    stranger = CertificateAuthority().issue("stranger")
    trust = {
        name: value
        for name, value in broker.client_config.items()
        if name in ("security.protocol", "ssl.ca.location")
    }
    shown = {
        "ssl.certificate.pem": stranger.certificate_pem.decode(),
        "ssl.key.pem": stranger.key_pem().decode(),
    }
    for config in ({}, trust, {**trust, **shown}):
        with (
            penstock.Admin(broker.bootstrap_servers, config=config, timeout_s=_REFUSED_S) as admin,
            pytest.raises(penstock.ClientError),
        ):
            admin.list_topics()


def test_client_of_another_authority_does_not_trust_it(broker: penstock.Broker) -> None:
    other = CertificateAuthority().certificate_pem.decode()
    config = {"security.protocol": "ssl", "ssl.ca.pem": other}
    with (
        penstock.Admin(broker.bootstrap_servers, config=config, timeout_s=_WAIT_S) as admin,
        pytest.raises(penstock.TlsFailed, match="its certificate is not accepted"),
    ):
        admin.list_topics()


def test_unknown_security_is_refused() -> None:
    with pytest.raises(ValueError, match="use 'tls' or 'sasl_ssl'"):
        penstock.Broker(security="ssl")  # type: ignore[arg-type]
