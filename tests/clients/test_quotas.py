"""Quotas set by our clients and by Kafka's, and clients that are slowed down by them."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.kafka_jars import Say, resolve_kafka_jars, run_tool
from tests.profile import is_long
from typer.testing import CliRunner

import penstock
from penstock import QuotaEntity, QuotaFilter, QuotaKey, QuotaMatch
from penstock.cli.main import app
from penstock.model.quotas import DEFAULT_ENTITY, InvalidQuota

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("client-kafka-python"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]
HANG_S = 180
WINDOW_S = 2  # samples of a second: what is above a quota is felt at once
SETTINGS = {"quota.window.num": str(WINDOW_S)}
RATE = 100_000  # bytes a second
VALUE = bytes(25_000)
COUNT = 16  # 400,000 bytes: four seconds at that rate, of which a window may come at once
LEAST_S = COUNT * len(VALUE) / RATE - WINDOW_S
EVERYBODY = QuotaEntity(user=DEFAULT_ENTITY)
ADA = QuotaEntity(user="ada")


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Broker]:
    data = tmp_path_factory.mktemp("quotas")
    with penstock.Broker(data=data, config=SETTINGS) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _without_quotas(broker: penstock.Broker) -> Iterator[None]:
    yield
    with penstock.Admin(broker.bootstrap_servers) as admin:
        left = admin.describe_client_quotas()
        if left:
            admin.alter_client_quotas(
                {entity: dict.fromkeys(values) for entity, values in left.items()}
            )


def limit(broker: penstock.Broker, entity: QuotaEntity = EVERYBODY, **values: float | None) -> None:
    with penstock.Admin(broker.bootstrap_servers) as admin:
        admin.alter_client_quotas({entity: values})


def quotas(broker: penstock.Broker, wanted: QuotaFilter | None = None) -> Mapping[Any, Any]:
    with penstock.Admin(broker.bootstrap_servers) as admin:
        return admin.describe_client_quotas(wanted)


# -- clients that are slowed down ------------------------------------------------------------


def test_confluent_kafka_produces_at_its_quota_and_is_told(broker: penstock.Broker) -> None:
    limit(broker, producer_byte_rate=RATE)
    throttles_ms: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "batch.num.messages": 2,
            "throttle_cb": lambda event: throttles_ms.append(event.throttle_time),
        }
    )
    broker.create_topic("produced")
    started_s = time.monotonic()
    for _ in range(COUNT):
        producer.produce("produced", VALUE, partition=0)
    assert producer.flush(HANG_S) == 0
    assert time.monotonic() - started_s >= LEAST_S
    assert max(throttles_ms) > 0


def test_kafka_python_produces_at_its_quota(broker: penstock.Broker) -> None:
    """It ignores the throttle time, so only the muted connection slows it down."""
    broker.create_topic("by-kafka-python")
    limit(broker, producer_byte_rate=RATE)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, batch_size=2 * len(VALUE), linger_ms=0
    )
    try:
        started_s = time.monotonic()
        sent = [producer.send("by-kafka-python", VALUE, partition=0) for _ in range(COUNT)]
        for future in sent:
            future.get(HANG_S)
        assert time.monotonic() - started_s >= LEAST_S
    finally:
        producer.close(timeout=HANG_S)


def test_confluent_kafka_consumes_everything_at_its_quota(broker: penstock.Broker) -> None:
    broker.create_topic("consumed")
    batches = {"batch.num.messages": 2}  # a larger one would pass while nothing was used
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **batches})
    for _ in range(COUNT):
        producer.produce("consumed", VALUE, partition=0)
    assert producer.flush(HANG_S) == 0
    limit(broker, consumer_byte_rate=RATE)
    throttles_ms: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "slow",
            "max.partition.fetch.bytes": 2 * len(VALUE),
            "throttle_cb": lambda event: throttles_ms.append(event.throttle_time),
        }
    )
    try:
        started_s = time.monotonic()
        consumer.assign([TopicPartition("consumed", 0, 0)])
        received: list[int] = []
        while len(received) < COUNT:
            message = consumer.poll(1.0)
            assert time.monotonic() - started_s < HANG_S
            if message is not None:
                assert message.error() is None
                assert message.value() == VALUE
                received.append(message.offset() or 0)
        assert received == list(range(COUNT))
        assert time.monotonic() - started_s >= LEAST_S
        assert max(throttles_ms) > 0
    finally:
        consumer.close()


def test_topics_above_the_mutation_rate_are_refused_or_made_to_wait(
    broker: penstock.Broker,
) -> None:
    limit(broker, controller_mutation_rate=0.01)
    with penstock.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics(penstock.NewTopic("mutated-1"))
        with pytest.raises(penstock.RefusedByBroker) as refused:
            admin.create_topics(penstock.NewTopic("mutated-2"))
    assert refused.value.code is penstock.ErrorCode.THROTTLING_QUOTA_EXCEEDED
    throttled = metric(broker, "throttled_total", "controller_mutation_rate")
    assert throttled >= 1
    # librdkafka's request is of a version whose clients do not know the error.
    theirs = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    created = theirs.create_topics([NewTopic("mutated-3", 1, 1)])
    assert created["mutated-3"].exception(HANG_S) is None
    assert metric(broker, "throttled_total", "controller_mutation_rate") > throttled


def metric(broker: penstock.Broker, name: str, quota: str) -> float:
    command = ["cluster", "metrics", "penstock_quota", "--json"]
    ran = CliRunner().invoke(app, [*command, "--bootstrap", broker.bootstrap_servers])
    assert ran.exit_code == 0, ran.output
    [metrics] = json.loads(ran.stdout)["brokers"].values()
    value: float = metrics[f'penstock_quota_{name}{{quota="{quota}"}}']
    return value


def test_what_quotas_have_throttled_is_counted(broker: penstock.Broker) -> None:
    limit(broker, producer_byte_rate=RATE)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    broker.create_topic("counted")
    producer.produce("counted", bytes(500_000), partition=0)
    assert producer.flush(HANG_S) == 0
    assert metric(broker, "throttled_total", "producer_byte_rate") >= 1
    assert metric(broker, "throttle_seconds_total", "producer_byte_rate") > 0


# -- our admin clients -----------------------------------------------------------------------


def test_admin_sets_describes_and_removes(broker: penstock.Broker) -> None:
    both = QuotaEntity("ada", DEFAULT_ENTITY)
    address = QuotaEntity(ip="10.0.0.7")
    with penstock.Admin(broker.bootstrap_servers) as admin:
        admin.alter_client_quotas(
            {
                ADA: {"producer_byte_rate": 1000, "request_percentage": 12.5},
                both: {"consumer_byte_rate": 2000},
                address: {"connection_creation_rate": 5},
            }
        )
        stored = admin.describe_client_quotas()
        assert stored == {
            ADA: {QuotaKey.PRODUCER_BYTE_RATE: 1000.0, QuotaKey.REQUEST_PERCENTAGE: 12.5},
            both: {QuotaKey.CONSUMER_BYTE_RATE: 2000.0},
            address: {QuotaKey.CONNECTION_CREATION_RATE: 5.0},
        }
        of_ada = (QuotaMatch("user", "ada"),)
        assert admin.describe_client_quotas(QuotaFilter(of_ada)).keys() == {ADA, both}
        assert admin.describe_client_quotas(QuotaFilter(of_ada, True)).keys() == {ADA}
        defaults = QuotaFilter((QuotaMatch("client-id", DEFAULT_ENTITY),))
        assert admin.describe_client_quotas(defaults).keys() == {both}
        assert admin.describe_client_quotas(QuotaFilter((QuotaMatch("ip", None),))).keys() == {
            address
        }
        admin.alter_client_quotas({ADA: {"producer_byte_rate": None}}, validate_only=True)
        assert admin.describe_client_quotas() == stored
        admin.alter_client_quotas({ADA: {"producer_byte_rate": None}})
        assert admin.describe_client_quotas()[ADA] == {QuotaKey.REQUEST_PERCENTAGE: 12.5}
        with pytest.raises(InvalidQuota, match="is no quota of user 'ada'"):
            admin.alter_client_quotas({ADA: {"connection_creation_rate": 1}})
        with pytest.raises(InvalidQuota, match="is not a number above 0"):
            admin.alter_client_quotas({ADA: {"producer_byte_rate": 0}})


def test_async_admin_does_the_same(broker: penstock.Broker) -> None:
    async def scenario() -> Mapping[QuotaEntity, Mapping[QuotaKey, float]]:
        async with penstock.AsyncAdmin(broker.bootstrap_servers) as admin:
            await admin.alter_client_quotas({ADA: {"producer_byte_rate": 1000}})
            return await admin.describe_client_quotas()

    assert asyncio.run(scenario()) == {ADA: {QuotaKey.PRODUCER_BYTE_RATE: 1000.0}}


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    broker = penstock.Broker(data=tmp_path, config=SETTINGS).start()
    try:
        limit(broker, producer_byte_rate=RATE)
        broker.kill()
        broker.start()
        assert quotas(broker) == {EVERYBODY: {QuotaKey.PRODUCER_BYTE_RATE: RATE}}
        assert "quotas_loaded" in broker.logs()
    finally:
        broker.stop()


# -- the command -----------------------------------------------------------------------------


def run(broker: penstock.Broker, *arguments: str, code: int = 0) -> str:
    """The standard output, or of wrong usage the standard error."""
    ran = CliRunner().invoke(app, ["quota", *arguments, "--bootstrap", broker.bootstrap_servers])
    assert ran.exit_code == code, ran.output
    return ran.stderr if code == 2 else ran.stdout


def test_the_command_sets_lists_and_removes(broker: penstock.Broker) -> None:
    run(broker, "set", "--user", "ada", "--client-id-default", "producer_byte_rate=1024")
    run(broker, "set", "--ip", "10.0.0.7", "connection_creation_rate=5")
    run(broker, "set", "--user", "ada", "consumer_byte_rate=1", "request_percentage=50")
    listed = json.loads(run(broker, "list", "--json"))
    assert listed == [
        {"user": None, "client-id": None, "ip": "10.0.0.7", **quota("connection_creation_rate", 5)},
        {"user": "ada", "client-id": None, "ip": None, **quota("consumer_byte_rate", 1)},
        {"user": "ada", "client-id": None, "ip": None, **quota("request_percentage", 50)},
        {"user": "ada", "client-id": "<default>", "ip": None, **quota("producer_byte_rate", 1024)},
    ]
    assert "<default>" in run(broker, "list", "--client-id-default")
    assert "request_percentage" not in run(broker, "remove", "--user", "ada", "consumer_byte_rate")
    assert "request_percentage" in run(broker, "remove", "--user", "ada")
    left = quotas(broker)
    assert left.keys() == {QuotaEntity("ada", DEFAULT_ENTITY), QuotaEntity(ip="10.0.0.7")}


def quota(key: str, value: float) -> dict[str, Any]:
    return {"quota": key, "value": value}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("set", "--user", "a", "producer_byte_rate"), "has no value"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "is no number"),
        (("set", "--user", "a", "producer_byte_rate=0"), "is not a number above 0"),
        (("set", "--user", "a", "connection_creation_rate=1"), "is no quota of user 'a'"),
        (("set", "--ip", "a.host", "connection_creation_rate=1"), "is no IP address"),
        (("set", "producer_byte_rate=1"), "give --user"),
        (("remove", "--user", "a", "--user-default"), "--user-default for all"),
    ],
)
def test_wrong_usage_of_the_command(
    broker: penstock.Broker, arguments: tuple[str, ...], why: str
) -> None:
    assert why in " ".join(run(broker, *arguments, code=2).split())


# -- Kafka's own tool ------------------------------------------------------------------------


@pytest.mark.skipif(not is_long(), reason="a JVM for each command: PROFILE=verify")
def test_kafkas_own_tool_sets_lists_and_removes(broker: penstock.Broker, say: Say) -> None:
    jars = resolve_kafka_jars(say)
    server = ("--bootstrap-server", broker.bootstrap_servers)

    def tool(*arguments: str) -> str:
        command = jars.command("kafka.admin.ConfigCommand", *server, *arguments)
        return run_tool(command, "kafka-configs", timeout_s=HANG_S)

    user = ("--entity-type", "users", "--entity-name", "ada")
    tool("--alter", *user, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    tool("--alter", *user, "--entity-type", "clients", "--entity-default",
         "--add-config", "consumer_byte_rate=2048")  # fmt: skip
    ip = ("--entity-type", "ips", "--entity-name", "127.0.0.1")
    tool("--alter", *ip, "--add-config", "connection_creation_rate=50")
    address = QuotaEntity(ip="127.0.0.1")
    assert quotas(broker) == {
        ADA: {QuotaKey.PRODUCER_BYTE_RATE: 1024.0, QuotaKey.REQUEST_PERCENTAGE: 12.5},
        QuotaEntity("ada", DEFAULT_ENTITY): {QuotaKey.CONSUMER_BYTE_RATE: 2048.0},
        address: {QuotaKey.CONNECTION_CREATION_RATE: 50.0},
    }
    assert "connection_creation_rate=50.0" in tool("--describe", *ip)
    tool("--alter", *ip, "--delete-config", "connection_creation_rate")
    assert address not in quotas(broker)
