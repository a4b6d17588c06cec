"""Unmodified clients on a topic with a delay: nothing is early, nothing is lost, no offset is out
of range."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.clients.java_clients import VERSIONS, JavaClient, resolve_java_clients
from tests.clients.our_topics import ask, new_topic
from tests.clients.scenarios import READ_TIMEOUT_S, Client, Message, Received, Start
from tests.clients.test_aiokafka import AioKafka
from tests.clients.test_confluent_kafka import ConfluentKafka
from tests.clients.test_kafka_python import KafkaPython
from tests.clients.test_kcat import Kcat
from tests.clients.tools import ToolMissingError, get_kcat
from tests.clients.under_test import BrokerUnderTest
from tests.interop.kafka_jars import KafkaUnavailableError, Say
from tests.profile import is_long

from penstock.client.admin_values import AlterConfigOp, ConfigResource
from penstock.client.errors import ClientError

pytestmark = [
    pytest.mark.xdist_group("topic delay"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

HOUR_MS = 3_600_000
SHORT_MS = 300
MESSAGES = [Message(number, b"key", b"value %d" % number, 0) for number in range(3)]
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


def delayed_topic(broker: BrokerUnderTest, delay_ms: int) -> str:
    return new_topic(
        broker,
        partitions=1,
        message__timestamp__type="LogAppendTime",
        penstock__delay__ms=str(delay_ms),
    )


def set_delay(broker: BrokerUnderTest, topic: str, delay_ms: int) -> None:
    changes = [AlterConfigOp("penstock.delay.ms", str(delay_ms))]
    altered = {ConfigResource.topic(topic): changes}
    ask(broker, lambda client: client.admin.incremental_alter_configs(altered))


def produce(client: Client, topic: str) -> None:
    """Each message in a batch of its own, so that they are appended one after the other."""
    for message in MESSAGES:
        now = message._replace(timestamp_ms=int(time.time() * 1000))
        client.produce(topic, [now], codec="none", acks="all")


def read(client: Client, topic: str, offset: int) -> list[Received]:
    """All records from the offset on, over several calls: kcat ends at the visible end."""
    received: list[Received] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while offset < len(MESSAGES) and time.monotonic() < deadline:
        received += client.read(topic, 0, Start(offset=offset), len(MESSAGES))
        offset = received[-1].offset + 1 if received else offset
    return received


def test_records_are_read_after_the_delay_and_not_before(
    client: Client, broker: BrokerUnderTest
) -> None:
    topic = delayed_topic(broker, SHORT_MS)
    produce(client, topic)
    received = read(client, topic, 0)
    finished_ms = time.time() * 1000
    assert [record.value for record in received] == [message.value for message in MESSAGES]
    assert finished_ms >= received[-1].timestamp_ms + SHORT_MS


def test_the_end_is_the_visible_end_and_a_position_beyond_it_waits(
    client: Client, broker: BrokerUnderTest
) -> None:
    topic = delayed_topic(broker, HOUR_MS)
    produce(client, topic)
    assert client.end_offset(topic, 0) == 0
    assert client.find_offset(topic, 0, 1) is None
    set_delay(broker, topic, SHORT_MS)
    (last,) = read(client, topic, 2)
    assert (last.offset, last.value) == (2, MESSAGES[2].value)
    assert time.time() * 1000 >= last.timestamp_ms + SHORT_MS
    assert client.end_offset(topic, 0) == len(MESSAGES)


@pytest.mark.parametrize(
    "configs",
    [
        {"penstock__delay__ms": "60000"},
        {
            "penstock__delay__ms": "60000",
            "message__timestamp__type": "LogAppendTime",
            "retention__ms": "60000",
        },
    ],
    ids=["CreateTime", "retention"],
)
def test_a_delay_that_cannot_work_is_refused(
    broker: BrokerUnderTest, configs: dict[str, str]
) -> None:
    with pytest.raises(ClientError, match=r"penstock\.delay\.ms: is 60000"):
        new_topic(broker, partitions=1, **configs)


def test_altering_a_topic_cannot_break_its_delay(broker: BrokerUnderTest) -> None:
    topic = delayed_topic(broker, HOUR_MS)
    for name, value in (("message.timestamp.type", "CreateTime"), ("retention.ms", "1000")):
        changes = [AlterConfigOp(name, value)]
        altered = {ConfigResource.topic(topic): changes}
        with pytest.raises(ClientError, match=r"penstock\.delay\.ms: is 3600000"):
            ask(broker, lambda client, it=altered: client.admin.incremental_alter_configs(it))  # type: ignore[misc]
