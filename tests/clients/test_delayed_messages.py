"""Unmodified clients delay records and cancel them; so do our producer and our commands."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.clients.java_clients import VERSIONS, JavaClient, resolve_java_clients
from tests.clients.our_topics import ask, new_topic
from tests.clients.scenarios import Client, Headers, Message, Received, Start
from tests.clients.test_aiokafka import AioKafka
from tests.clients.test_confluent_kafka import ConfluentKafka
from tests.clients.test_kafka_python import KafkaPython
from tests.clients.test_kcat import Kcat
from tests.clients.tools import ToolMissingError, get_kcat
from tests.clients.under_test import BrokerUnderTest
from tests.interop.kafka_jars import KafkaUnavailableError, Say
from tests.profile import is_long
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.client.errors import RefusedByBroker
from penstock.model.errors import ErrorCode

pytestmark = [
    pytest.mark.xdist_group("delayed messages"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

HANG_S = 180.0
POLL_S = 0.05
MORE = ["java", "kcat"] if is_long() else []


@pytest.fixture(scope="module", params=["librdkafka", "kafka-python", "aiokafka", *MORE])
def client(
    request: pytest.FixtureRequest,
    broker: BrokerUnderTest,
    say: Say,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Client]:
    servers = broker.bootstrap_servers
    if request.param == "kcat":
        try:
            yield Kcat(get_kcat(say), servers)
        except ToolMissingError as error:
            pytest.skip(f"skipped: {error}")
        return
    client: ConfluentKafka | KafkaPython | AioKafka | JavaClient
    if request.param == "librdkafka":
        client = ConfluentKafka(servers)
    elif request.param == "kafka-python":
        client = KafkaPython(servers)
    elif request.param == "aiokafka":
        client = AioKafka(servers)
    else:
        try:
            resolved = resolve_java_clients(VERSIONS[0], say)
        except KafkaUnavailableError as error:
            pytest.skip(f"skipped: {error}")
        client = JavaClient(resolved, servers, tmp_path_factory.mktemp("java") / "client.log")
    yield client
    client.close()


@pytest.fixture
def topic(broker: BrokerUnderTest) -> str:
    return new_topic(broker, partitions=1, penstock__delayed__messages="true")


def send(client: Client, topic: str, number: int, *headers: tuple[str, bytes], acks: str) -> None:
    given: Headers = headers
    message = Message(number, b"key", b"value %d" % number, 0)
    client.produce(topic, [message], codec="none", acks=acks, headers=given)


def read(client: Client, topic: str, end_offset: int) -> list[Received]:
    deadline = time.monotonic() + HANG_S
    while client.end_offset(topic, 0) < end_offset:
        assert time.monotonic() < deadline, f"{topic} ends before {end_offset}"
        time.sleep(POLL_S)
    return client.read(topic, 0, Start(), end_offset)


@pytest.mark.parametrize("acks", ["1", "all"])  # all: idempotent, where the client can
def test_any_client_delays_records_and_cancels_them(
    client: Client, broker: BrokerUnderTest, topic: str, acks: str
) -> None:
    replies = new_topic(broker, partitions=1)
    due_ms = int(time.time() * 1000) + 1_500
    send(client, topic, 1, ("penstock-deliver-at", b"%d" % due_ms), ("trace", b"t"), acks=acks)
    # What is cancelled would wait for an hour: a slow machine must not deliver it before.
    for delay_id, delay_ms in ((b"x", b"3600000"), (b"y", b"2000")):
        delay = (("penstock-delay-ms", delay_ms), ("penstock-delay-id", delay_id))
        send(client, topic, 2, *delay, acks=acks)
    send(client, topic, 3, acks=acks)
    reply_topic = ("penstock-reply-topic", replies.encode())
    send(client, topic, 0, ("penstock-delay-cancel", b"x"), reply_topic, acks=acks)
    send(client, topic, 0, ("penstock-delay-cancel", b"nobody"), reply_topic, acks=acks)
    answers = [(answer.key, answer.value) for answer in read(client, replies, 2)]
    assert answers == [(b"x", b"cancelled"), (b"nobody", b"unknown")]
    received = _read_values(client, topic, 3)
    assert time.time() * 1000 >= due_ms
    assert sorted(record.value for record in received) == [b"value 1", b"value 2", b"value 3"]
    (delayed,) = (record for record in received if record.value == b"value 1")
    assert delayed.headers == (("trace", b"t"),)
    assert delayed.timestamp_ms == due_ms


def _read_values(client: Client, topic: str, count: int) -> list[Received]:
    """Offsets have gaps where batches wait as a whole."""
    deadline = time.monotonic() + HANG_S
    while True:
        end_offset = client.end_offset(topic, 0)
        received = client.read(topic, 0, Start(), end_offset) if end_offset else []
        if len(received) >= count:
            return received
        assert time.monotonic() < deadline, received
        time.sleep(POLL_S)


# -- our own -----------------------------------------------------------------------------------


@pytest.fixture
def producer(broker: BrokerUnderTest) -> Iterator[penstock.Producer]:
    with penstock.Producer(broker.bootstrap_servers) as producer:
        yield producer


@pytest.fixture
def command(broker: BrokerUnderTest) -> Callable[..., Any]:
    def run(*arguments: str) -> tuple[int, str]:
        environment = {"PENSTOCK_BOOTSTRAP": broker.bootstrap_servers}
        done = CliRunner().invoke(app, ["delayed", *arguments], env=environment)
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return done.exit_code, done.stdout

    return run


def consume(broker: BrokerUnderTest, topic: str, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    with penstock.Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, from_beginning=True, timeout_s=HANG_S
    ) as consumer:
        for message in consumer:
            values.append(message.value)
            if len(values) == count:
                break
    return values


def test_our_producer_delays_cancels_and_replaces(
    broker: BrokerUnderTest, topic: str, producer: penstock.Producer
) -> None:
    metadata = producer.send_and_wait(
        topic, b"first", delay_s=3600, delay_id="x", headers={"a": b"b"}
    )
    assert metadata.offset == -1
    soon = datetime.now(UTC) + timedelta(seconds=1)
    producer.send(topic, b"soon", deliver_at=soon)
    producer.send(topic, b"second", delay_s=3600, delay_id="y")
    producer.send(topic, b"replaced", delay_s=0.5, delay_id="y")
    assert producer.cancel(topic, "x") == "cancelled"
    assert producer.cancel(topic, "x") == "cancelled"
    assert producer.cancel(topic, "nobody") == "unknown"
    assert sorted(map(bytes, filter(None, consume(broker, topic, 2)))) == [b"replaced", b"soon"]
    assert producer.cancel(topic, "y") == "delivered"


def test_no_record_of_a_batch_that_waits_has_an_offset(
    topic: str, producer: penstock.Producer
) -> None:
    sent = [producer.send(topic, b"v", delay_s=3600) for _ in range(5)]
    assert [future.result(HANG_S).offset for future in sent] == [-1] * 5


def test_our_producer_refuses_what_means_nothing(
    topic: str, producer: penstock.Producer, broker: BrokerUnderTest
) -> None:
    for wrong in ({"delay_id": "x"}, {"delay_s": -1.0}, {"delay_s": 1.0, "delay_id": ""}):
        with pytest.raises(ValueError, match="delay"):
            producer.send(topic, b"v", **wrong)
    with pytest.raises(ValueError, match="either"):
        producer.send(topic, b"v", delay_s=1, deliver_at=datetime.now(UTC))
    with pytest.raises(penstock.SendFailed) as failed:
        producer.send_and_wait(topic, b"v", delay_s=10 * 365 * 86_400)
    assert failed.value.code is ErrorCode.POLICY_VIOLATION
    with pytest.raises(RefusedByBroker, match="does not exist"):
        producer.cancel("no-such-topic", "x")


def test_our_producer_delays_nothing_where_it_would_come_at_once(
    producer: penstock.Producer, broker: BrokerUnderTest
) -> None:
    plain = new_topic(broker, partitions=1)
    for _ in range(2):  # it is asked again: the setting may be added
        with pytest.raises(penstock.RefusedByBroker, match=r"penstock\.delayed\.messages=true"):
            producer.send(plain, b"v", delay_s=60)
    with pytest.raises(penstock.UnknownTopicOrPartition):
        producer.send("no-such-topic", b"v", deliver_at=datetime.now(UTC))
    producer.send_and_wait(plain, b"v")
    assert consume(broker, plain, 1) == [b"v"]


def test_commands_list_cancel_and_deliver(
    broker: BrokerUnderTest, topic: str, producer: penstock.Producer, command: Callable[..., Any]
) -> None:
    for number, delay_id in enumerate(("a", "b", "c")):
        producer.send_and_wait(
            topic, b"v%d" % number, key=b"k", delay_s=3600 * (3 - number), delay_id=delay_id
        )
    status, output = command("list", "--topic", topic, "--json")
    listed = json.loads(output)
    assert status == 0
    assert [message["delay_id"] for message in listed] == ["c", "b", "a"]
    assert {message["topic"] for message in listed} == {topic}
    assert command("cancel", topic, "a") == (0, "cancelled\n")
    assert command("cancel", topic, "nobody")[0] == 1
    assert command("deliver-now", topic, "b") == (0, "delivered\n")
    assert command("deliver-now", topic, "a") == (1, "cancelled\n")
    assert consume(broker, topic, 1) == [b"v1"]
    status, output = command("list", "--topic", topic, "--limit", "5")
    rows = output.splitlines()
    assert (status, len(rows)) == (0, 2)
    assert rows[1].split()[:2] == [topic, "0"]
    assert " c " in rows[1]


def test_the_setting_is_refused_for_internal_topics(broker: BrokerUnderTest) -> None:
    with pytest.raises(RefusedByBroker) as refused:
        new_topic(
            broker, partitions=1, name="__penstock_deferred", penstock__delayed__messages="true"
        )
    assert refused.value.code in (ErrorCode.INVALID_CONFIG, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert ask(broker, lambda client: client.metadata()) is not None
