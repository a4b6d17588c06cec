"""Every client logs in by every mechanism over TLS; users from other clients and Kafka's tool."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import jwt
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from tests.clients.tools import get_kcat
from tests.interop.kafka_jars import Say, resolve_kafka_jars, run_tool
from tests.profile import is_long

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.security.properties import parse_client_security
from penstock.model.cluster import BrokerId

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("tls"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]
_WAIT_S = 120
_USER = "ada"
_PASSWORD = 'a "quoted", \\odd= pässword'
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
Config = dict[str, str]
RoundTrip = Callable[[Config, str], bytes]


@pytest.fixture(scope="module", name="broker")
def _broker() -> Iterator[penstock.Broker]:
    # Sessions so short that a client that cannot renew its own would lose its connection.
    config = {"connections.max.reauth.ms": 3_000}
    with penstock.Broker(security="sasl_ssl", config=config) as broker:
        with admin_of(broker) as admin:
            admin.create_user(_USER, _PASSWORD)
        yield broker


def admin_of(broker: penstock.Broker) -> penstock.Admin:
    return penstock.Admin(broker.bootstrap_servers, config=broker.client_config)


def login(broker: penstock.Broker, mechanism: str) -> Config:
    """PLAIN's user is the broker's own one for tests."""
    if mechanism == "PLAIN":
        return broker.client_config
    user = {"sasl.mechanism": mechanism, "sasl.username": _USER, "sasl.password": _PASSWORD}
    return {**broker.client_config, **user}


def _confluent(config: Config, topic: str) -> bytes:
    producer = Producer(config)
    producer.produce(topic, b"confluent")
    assert producer.flush(_WAIT_S) == 0
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(_WAIT_S)
        assert message is not None
        if message.error() is not None:
            raise KafkaException(message.error())
        return message.value() or b""
    finally:
        consumer.close()


def _kafka_python(config: Config, topic: str) -> bytes:
    options = {
        "bootstrap_servers": config["bootstrap.servers"],
        "security_protocol": "SASL_SSL",
        "ssl_cafile": config["ssl.ca.location"],
        "sasl_mechanism": config["sasl.mechanism"],
        "sasl_plain_username": config["sasl.username"],
        "sasl_plain_password": config["sasl.password"],
    }
    producer = kafka.KafkaProducer(**options)
    producer.send(topic, b"kafka-python").get(_WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **options, auto_offset_reset="earliest", consumer_timeout_ms=_WAIT_S * 1000
    )
    try:
        value: bytes = next(consumer).value
        return value
    finally:
        consumer.close()


def _aiokafka(config: Config, topic: str) -> bytes:
    async def round_trip() -> bytes:
        options = {
            "bootstrap_servers": config["bootstrap.servers"],
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=config["ssl.ca.location"]),
            "sasl_mechanism": config["sasl.mechanism"],
            "sasl_plain_username": config["sasl.username"],
            "sasl_plain_password": config["sasl.password"],
        }
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"aiokafka")
        async with AIOKafkaConsumer(topic, **options, auto_offset_reset="earliest") as consumer:
            value: bytes = (await consumer.getone()).value
            return value

    async def bounded() -> bytes:
        return await asyncio.wait_for(round_trip(), _WAIT_S)

    return asyncio.run(bounded())


def _ours(config: Config, topic: str) -> bytes:
    servers = config["bootstrap.servers"]
    with penstock.Producer(servers, config=config) as producer:
        producer.send_and_wait(topic, b"ours")
    with penstock.Consumer(
        topic, bootstrap_servers=servers, from_beginning=True, config=config, timeout_s=_WAIT_S
    ) as consumer:
        return next(iter(consumer)).value or b""


@pytest.mark.parametrize("mechanism", _MECHANISMS)
@pytest.mark.parametrize(
    ("round_trip", "expected"),
    [
        (_confluent, b"confluent"),
        (_kafka_python, b"kafka-python"),
        (_aiokafka, b"aiokafka"),
        (_ours, b"ours"),
    ],
)
def test_clients_log_in_write_and_read(
    broker: penstock.Broker, round_trip: RoundTrip, expected: bytes, mechanism: str
) -> None:
    in_short: set[tuple[RoundTrip, str]] = {
        (_confluent, "SCRAM-SHA-512"),
        (_kafka_python, "SCRAM-SHA-256"),
        (_ours, "PLAIN"),
    }
    if not is_long() and (round_trip, mechanism) not in in_short:
        pytest.skip("a client more for a mechanism: PROFILE=verify")
    topic = f"{expected.decode()}-{mechanism}"
    with admin_of(broker) as admin:
        admin.create_topics(penstock.NewTopic(topic))
    assert round_trip(login(broker, mechanism), topic) == expected


def test_a_producer_and_a_consumer_outlive_their_sessions(broker: penstock.Broker) -> None:
    """KIP-368: sessions last 3 s, and both go on on the connections that they have."""
    config = login(broker, "SCRAM-SHA-512")
    with admin_of(broker) as admin:
        admin.create_topics(penstock.NewTopic("long"))
    producer = Producer(config)
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["long"])
    give_up_s = time.monotonic() + _WAIT_S
    try:
        while asyncio.run(_count_renewals(broker)) < 4:
            assert time.monotonic() < give_up_s, "no session was renewed"
            producer.produce("long", b"x")
            assert producer.flush(_WAIT_S) == 0
            message = consumer.poll(_WAIT_S)
            assert message is not None
            assert message.error() is None
    finally:
        consumer.close()


async def _count_renewals(broker: penstock.Broker) -> float:
    """Logins beyond the first one of each connection."""
    security = parse_client_security(broker.client_config)
    prefix = "penstock_network_"
    async with ClusterClient(broker.bootstrap_servers, security=security) as client:
        described = await client.metrics.describe(BrokerId(1), (prefix,))
    lines = [line.split() for line in described.text.splitlines() if line.startswith(prefix)]
    values = {name: float(value) for name, value in lines}
    accepted = values[f"{prefix}connections_accepted_total"]
    return values[f"{prefix}authentications_total"] - accepted


def test_confluent_kafkas_admin_creates_a_user_and_deletes_it(broker: penstock.Broker) -> None:
    admin: Any = AdminClient({**broker.client_config})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    created = UserScramCredentialUpsertion("eve", info, b"eves-password")
    admin.alter_user_scram_credentials([created])["eve"].result(_WAIT_S)
    described = admin.describe_user_scram_credentials(["eve"])["eve"].result(_WAIT_S)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_512, 8192)
    ]
    eve = {"sasl.username": "eve", "sasl.password": "eves-password"}
    config = {**login(broker, "SCRAM-SHA-512"), **eve}
    with penstock.Admin(broker.bootstrap_servers, config=config) as as_eve:
        assert "eve" in {user.name for user in as_eve.list_users()}
    deleted = UserScramCredentialDeletion("eve", ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([deleted])["eve"].result(_WAIT_S)
    with (
        penstock.Admin(broker.bootstrap_servers, config=config, timeout_s=60) as as_eve,
        pytest.raises(penstock.AuthenticationFailed),
    ):
        as_eve.list_users()


@pytest.mark.skipif(not is_long(), reason="one client more: PROFILE=verify")
@pytest.mark.parametrize("mechanism", _MECHANISMS)
def test_kcat_logs_in(broker: penstock.Broker, mechanism: str, say: Say) -> None:
    config = login(broker, mechanism)
    options = [part for name, value in config.items() for part in ("-X", f"{name}={value}")]
    kcat, topic = get_kcat(say), f"kcat-{mechanism}"
    with admin_of(broker) as admin:
        admin.create_topics(penstock.NewTopic(topic))
    common = {"capture_output": True, "timeout": _WAIT_S, "check": True}
    subprocess.run([kcat, *options, "-P", "-t", topic], input=b"kcat\n", **common)  # type: ignore[call-overload]
    read = subprocess.run([kcat, *options, "-C", "-e", "-q", "-t", topic], **common)  # type: ignore[call-overload]
    assert read.stdout == b"kcat\n"


def _java_config(config: Config, folder: Path) -> Path:
    mechanism = config["sasl.mechanism"]
    quoted = {
        name: config[f"sasl.{name}"].replace("\\", "\\\\").replace('"', '\\"')
        for name in ("username", "password")
    }
    jaas = (
        f'{_MODULES[mechanism.partition("-")[0]]} required username="{quoted["username"]}" '
        f'password="{quoted["password"]}";'
    )
    lines = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": config["ssl.ca.location"],
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    path = folder / f"{mechanism}.properties"
    text = "".join(f"{name}={_escape(value)}\n" for name, value in lines.items())
    path.write_text(text)
    return path


def _escape(value: str) -> str:
    escaped = value.replace("\\", "\\\\")
    return "".join(char if char < "\x7f" else f"\\u{ord(char):04x}" for char in escaped)


@pytest.mark.skipif(not is_long(), reason="a JVM for each command: PROFILE=verify")
@pytest.mark.parametrize("mechanism", _MECHANISMS)
def test_java_clients_log_in(
    broker: penstock.Broker, mechanism: str, tmp_path: Path, say: Say
) -> None:
    jars, topic = resolve_kafka_jars(say), f"java-{mechanism}"
    config = str(_java_config(login(broker, mechanism), tmp_path))
    server = ("--bootstrap-server", broker.bootstrap_servers, "--topic", topic)
    with admin_of(broker) as admin:
        admin.create_topics(penstock.NewTopic(topic))
    produce = jars.command(
        "org.apache.kafka.tools.ConsoleProducer", *server, "--producer.config", config
    )
    subprocess.run(produce, input=b"java\n", capture_output=True, timeout=180, check=True)
    consume = jars.command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *server,
        *("--consumer.config", config, "--from-beginning", "--max-messages", "1"),
    )
    assert "java" in run_tool(consume, "the console consumer", timeout_s=180).split()


@pytest.mark.skipif(not is_long(), reason="a JVM for each command: PROFILE=verify")
def test_kafkas_own_tool_creates_and_deletes_users(
    broker: penstock.Broker, tmp_path: Path, say: Say
) -> None:
    jars = resolve_kafka_jars(say)
    config = str(_java_config(login(broker, "SCRAM-SHA-512"), tmp_path))

    def tool(*arguments: str) -> str:
        server = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", config)
        user = ("--entity-type", "users", "--entity-name", "of-the-tool")
        command = jars.command("kafka.admin.ConfigCommand", *server, *user, *arguments)
        return run_tool(command, "kafka-configs", timeout_s=180)

    tool("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=tools-password]")
    login_of_it = {"sasl.username": "of-the-tool", "sasl.password": "tools-password"}
    client = {**login(broker, "SCRAM-SHA-256"), **login_of_it}
    with penstock.Admin(broker.bootstrap_servers, config=client) as admin:
        users = {user.name: user.iterations for user in admin.list_users()}
    assert users["of-the-tool"] == {"SCRAM-SHA-256": 8192}
    tool("--alter", "--delete-config", "SCRAM-SHA-256")
    with admin_of(broker) as admin:
        assert "of-the-tool" not in {user.name for user in admin.list_users()}


# -- tokens --------------------------------------------------------------------------------


@pytest.mark.skipif(not is_long(), reason="waits for tokens to expire: PROFILE=verify")
def test_confluent_kafka_logs_in_by_a_token_and_renews_it(tmp_path: Path) -> None:
    """Tokens last 4 s, and so do sessions; one of another audience is refused."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": "k", "alg": "RS256"}
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [public]}))
    made: list[float] = []

    def make_token(audience: str) -> tuple[str, float]:
        expires_s = time.time() + 4
        claims = {"sub": "ada", "iss": "https://issuer", "aud": audience, "exp": expires_s}
        made.append(expires_s)
        return jwt.encode(claims, key, algorithm="RS256", headers={"kid": "k"}), expires_s

    config = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.clock.skew.seconds": 0,
    }
    with penstock.Broker(data=tmp_path / "data", security="sasl_ssl", config=config) as broker:
        broker.create_topic("orders")
        common = {
            name: value
            for name, value in broker.client_config.items()
            if not name.startswith("sasl.")
        }
        common["sasl.mechanism"] = "OAUTHBEARER"
        producer = Producer({**common, "oauth_cb": lambda _: make_token("kafka")})
        give_up_s = time.monotonic() + _WAIT_S
        while len(made) < 3:
            assert time.monotonic() < give_up_s, "the token was not renewed"
            producer.produce("orders", b"x")
            assert producer.flush(_WAIT_S) == 0
            producer.poll(0.2)
        stranger: Any = AdminClient(
            cast("Any", {**common, "oauth_cb": lambda _: make_token("somebody")})
        )
        while "OAUTHBEARER: the token is refused: InvalidAudienceError" not in broker.logs():
            assert time.monotonic() < give_up_s, "the token was not refused"
            with pytest.raises(KafkaException):
                stranger.list_topics(timeout=1)
