"""The offsets that a client of Kafka 0.10.0 requests: ListOffsets version 0."""

from __future__ import annotations

import warnings

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.under_test import BrokerUnderTest

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("client-kafka-python"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


def test_kafka_python_configured_for_an_old_broker_finds_start_and_end_offsets(
    broker: BrokerUnderTest,
) -> None:
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("old-offsets", 2, 1)])["old-offsets"].result(60)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(3):
        producer.produce("old-offsets", str(number), partition=0)
    assert producer.flush(60) == 0
    written, empty = (kafka.TopicPartition("old-offsets", partition) for partition in (0, 1))
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, api_version=(0, 10, 0))
    try:
        assert consumer.end_offsets([written, empty]) == {written: 3, empty: 0}
        assert consumer.beginning_offsets([written, empty]) == {written: 0, empty: 0}
    finally:
        consumer.close()
