"""kafka-python against the broker."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
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

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("client-kafka-python"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

CODECS = {"none": None}  # the other codecs have their usual names
ACKS = {"0": 0, "1": 1}


def test_the_broker_is_taken_for_the_kafka_version_it_behaves_like(broker: BrokerUnderTest) -> None:
    """kafka-python infers it from the versions of single APIs, such as Fetch, and enables features
    by it."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        (node,) = admin.describe_cluster()["brokers"]
        assert admin.get_broker_version_data(node["broker_id"]).broker_version >= (3, 9)
    finally:
        admin.close()


class KafkaPython:
    sets_timestamps = True

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap_servers)
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap_servers, enable_auto_commit=False, fetch_max_wait_ms=10
        )

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    def create_topic(self, topic: str, partitions: int) -> None:
        new = {"num_partitions": partitions, "replication_factor": 1}
        self._admin.create_topics({topic: new})

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str,
        acks: str,
        headers: Headers = HEADERS,
    ) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap_servers,
            compression_type=CODECS.get(codec, codec),
            acks=ACKS.get(acks, acks),
            enable_idempotence=acks == "all",
            linger_ms=200,
        )
        sent = [
            producer.send(
                topic,
                value=message.value,
                key=message.key,
                timestamp_ms=message.timestamp_ms,
                headers=list(headers),
            )
            for message in messages
        ]
        producer.flush(timeout=180)
        for future in sent:
            future.get(timeout=180)
        producer.close(timeout=180)

    def end_offset(self, topic: str, partition: int) -> int:
        tp = kafka.TopicPartition(topic, partition)
        return int(self._consumer.end_offsets([tp])[tp])

    def find_offset(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        tp = kafka.TopicPartition(topic, partition)
        offset = self._consumer.offsets_for_times({tp: timestamp_ms})[tp]
        return None if offset is None else int(offset.offset)

    def read(self, topic: str, partition: int, start: Start, end_offset: int) -> list[Received]:
        tp = kafka.TopicPartition(topic, partition)
        offset = start.offset
        if start.timestamp_ms is not None:
            offset = self.find_offset(topic, partition, start.timestamp_ms)
        self._consumer.assign([tp])
        if offset is None:
            self._consumer.seek_to_beginning(tp)
        else:
            self._consumer.seek(tp, offset)
        received: list[Received] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while self._consumer.position(tp) < end_offset and time.monotonic() < deadline:
            for record in self._consumer.poll(timeout_ms=500).values():
                received += map(_to_received, record)
        return received


def _to_received(record: Any) -> Received:
    headers = tuple((name, bytes(content)) for name, content in record.headers)
    return Received(
        record.partition, record.offset, record.timestamp, record.key, record.value, headers
    )


@pytest.fixture(scope="module")
def client(broker: BrokerUnderTest) -> Iterator[KafkaPython]:
    client = KafkaPython(broker.bootstrap_servers)
    yield client
    client.close()


class TestKafkaPython(ClientScenarios):
    pass
