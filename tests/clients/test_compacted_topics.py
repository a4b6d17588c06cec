"""Clients read a compacted topic from start to end, across everything that compaction left
behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from tests.clients.java_clients import VERSIONS, JavaClient, resolve_java_clients
from tests.clients.our_topics import ask, new_topic
from tests.clients.scenarios import Start
from tests.clients.under_test import BrokerUnderTest, broker_under_test
from tests.interop.kafka_jars import KafkaUnavailableError, Say
from tests.profile import is_long

from penstock.client.admin_values import AlterConfigOp, ConfigResource
from penstock.protocol.batch import BatchHeader

pytestmark = pytest.mark.xdist_group("compacted topics")

PATIENCE_S = 180.0
KEPT = [b"first", b"same", b"last"]


@pytest.fixture(name="broker", scope="module")
def _broker(tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[BrokerUnderTest]:
    often = {"log.cleaner.backoff.ms": "100"}
    with broker_under_test(tmp_path_factory.mktemp("cleaner"), say, often) as broker:
        yield broker


@pytest.fixture(
    name="topic",
    scope="module",
    params=[False, True] if is_long() else [False],
    ids=["plain", "idempotent"] if is_long() else ["plain"],
)
def _topic(request: pytest.FixtureRequest, broker: BrokerUnderTest) -> str:
    """A topic in which all but the first record and the last two are obsolete, cleaned in one pass
    over many segments."""
    topic = new_topic(broker, partitions=1, segment__bytes="16384")
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "linger.ms": 0,
        "enable.idempotence": request.param,
    }
    # Each segment has its own producer, whose last batch must stay if it is idempotent.
    for segment in range(4 if request.param else 14):
        producer = Producer(config)
        if segment == 0:
            send(producer, topic, b"first")
        for _ in range(4):
            send(producer, topic, b"same", size=4_000)
    send(producer, topic, b"same", size=16_300)
    send(producer, topic, b"last")
    compact(broker, topic)
    return topic


def send(producer: Producer, topic: str, key: bytes, size: int = 10) -> None:
    """Sends the record in a batch of its own."""
    producer.produce(topic, b"v" * size, key=key, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def compact(broker: BrokerUnderTest, topic: str) -> None:
    changes = [
        AlterConfigOp("cleanup.policy", "compact"),
        AlterConfigOp("min.cleanable.dirty.ratio", "0.01"),
    ]
    altered = {ConfigResource.topic(topic): changes}
    ask(broker, lambda client: client.admin.incremental_alter_configs(altered))
    deadline = time.monotonic() + PATIENCE_S
    while sum(header.record_count for header in stored(broker, topic)) > len(KEPT):
        assert time.monotonic() < deadline, f"{topic} was not cleaned in {PATIENCE_S:g} s"
        time.sleep(0.05)


def stored(broker: BrokerUnderTest, topic: str) -> list[BatchHeader]:
    while True:
        try:
            return broker.stored_batches(topic, 0)
        except FileNotFoundError:  # the cleaner has just replaced a segment
            continue


def test_a_batch_without_records_stays_only_as_the_last_of_its_producer(
    broker: BrokerUnderTest, topic: str
) -> None:
    headers = stored(broker, topic)
    lasts = {header.producer_id: header.last_offset for header in headers}
    for header in headers:
        is_last = header.producer_id >= 0 and header.last_offset == lasts[header.producer_id]
        assert header.record_count or is_last, header


def test_librdkafka_reads_a_compacted_topic_from_its_start(
    broker: BrokerUnderTest, topic: str
) -> None:
    """librdkafka doubles its fetch size after each response without records, and finally gives
    up."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none: partitions are assigned",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "fetch.message.max.bytes": 1_000_000_000,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        messages = [poll(consumer) for _ in KEPT]
    finally:
        consumer.close()
    assert [message.key() for message in messages] == KEPT


def poll(consumer: Consumer) -> Message:
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None, message.error()
    return message


@pytest.mark.skipif(not is_long(), reason="skipped: starts two JVMs; runs with PROFILE=verify")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_java_client_reads_a_compacted_topic_from_its_start(
    broker: BrokerUnderTest, topic: str, version: str, say: Say, tmp_path: Path
) -> None:
    try:
        clients = resolve_java_clients(version, say)
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")
    client = JavaClient(clients, broker.bootstrap_servers, tmp_path / "java.log")
    try:
        received = client.read(topic, 0, Start(), client.end_offset(topic, 0))
    finally:
        client.close()
    assert [record.key for record in received] == KEPT
