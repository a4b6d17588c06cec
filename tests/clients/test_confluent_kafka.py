"""confluent-kafka (librdkafka) against the broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.scenarios import (
    HEADERS,
    READ_TIMEOUT_S,
    ClientScenarios,
    Headers,
    Message,
    Received,
    Start,
)
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("client-confluent-kafka")


class ConfluentKafka:
    sets_timestamps = True

    def __init__(self, bootstrap_servers: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
        self._consumer = Consumer(
            {
                **self._common,
                "group.id": "none: partitions are assigned",  # required by the constructor
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = AdminClient(self._common)  # must live until the response arrives
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=180)

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str,
        acks: str,
        headers: Headers = HEADERS,
    ) -> None:
        failures: list[KafkaError] = []
        producer = Producer(
            {
                **self._common,
                "compression.type": codec,
                "acks": acks,
                "linger.ms": 60_000,
            }  # until flushed
        )
        # Messages for a topic that is not known yet are handed over one by one during the flush.
        producer.list_topics(topic, timeout=180)
        for message in messages:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                timestamp=message.timestamp_ms,
                headers=list(headers),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(180) == 0
        assert not failures

    def end_offset(self, topic: str, partition: int) -> int:
        tp = TopicPartition(topic, partition)
        _, end_offset = self._consumer.get_watermark_offsets(tp, timeout=180)
        return end_offset

    def find_offset(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        wanted = [TopicPartition(topic, partition, timestamp_ms)]
        (offset,) = self._consumer.offsets_for_times(wanted, timeout=180)
        if offset.error:
            raise KafkaException(offset.error)
        return offset.offset if offset.offset >= 0 else None

    def read(self, topic: str, partition: int, start: Start, end_offset: int) -> list[Received]:
        offset = start.offset
        if start.timestamp_ms is not None:
            offset = self.find_offset(topic, partition, start.timestamp_ms)
        first = OFFSET_BEGINNING if offset is None else offset
        self._consumer.assign([TopicPartition(topic, partition, first)])
        received: list[Received] = []
        missing = end_offset - (offset or 0)
        deadline = time.monotonic() + READ_TIMEOUT_S
        while missing > 0 and time.monotonic() < deadline:
            messages = self._consumer.consume(missing, timeout=1)  # returns early with this many
            received += [_to_received(message) for message in messages]
            missing -= len(messages)
        self._consumer.unassign()
        return received


def _to_received(message: Any) -> Received:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    key, value = message.key(), message.value()
    headers = tuple((name, content) for name, content in message.headers() or ())
    return Received(
        message.partition(), message.offset(), message.timestamp()[1], key, value, headers
    )


@pytest.fixture(scope="module")
def client(broker: BrokerUnderTest) -> Iterator[ConfluentKafka]:
    client = ConfluentKafka(broker.bootstrap_servers)
    yield client
    client.close()


class TestConfluentKafka(ClientScenarios):
    pass
