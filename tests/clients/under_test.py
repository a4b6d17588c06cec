"""The broker that the clients connect to: Penstock's own, a real Kafka, or one that is running
already.

PENSTOCK_TEST_BROKER chooses: unset is `penstock.Broker()`, `kafka` is Apache Kafka from its jars,
HOST:PORT is a running broker (its data directory, if local, in PENSTOCK_TEST_DATA). A running
broker must create topics automatically, with three partitions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_jars import Say, resolve_kafka_jars
from tests.stored_batches import read_stored

import penstock
from penstock.protocol.batch import BatchHeader, iter_headers

PARTITIONS = 3
SETTINGS = {"num.partitions": str(PARTITIONS), "auto.create.topics.enable": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUnderTest:
    bootstrap_servers: str
    data: Path | None  # where its partition directories are; None: not on this machine
    is_kafka: bool = False

    def wait_until_led(self, topic: str) -> None:
        """KRaft responds before the partitions have leaders, and with acks=0 that loses messages.
        Penstock responds later and needs no wait."""
        if self.is_kafka:
            _wait_until_led(self.bootstrap_servers, topic)

    def stored_batches(self, topic: str, partition: int) -> list[BatchHeader]:
        """The headers of all batches in the partition's segment files."""
        assert self.data is not None
        content = read_stored(self.data, topic, partition)
        return [header for _, header in iter_headers(content)]


@contextmanager
def broker_under_test(
    directory: Path, say: Say, more: Mapping[str, str] | None = None
) -> Iterator[BrokerUnderTest]:
    """`more` has settings besides the usual ones; a broker that is running already keeps its
    own."""
    settings = SETTINGS | dict(more or {})
    wanted = os.environ.get("PENSTOCK_TEST_BROKER", "")
    if wanted == "kafka":
        with KafkaBroker(resolve_kafka_jars(say), directory, settings) as kafka:
            yield BrokerUnderTest(bootstrap_servers=kafka.bootstrap, data=kafka.data, is_kafka=True)
    elif wanted:
        data = os.environ.get("PENSTOCK_TEST_DATA")
        yield BrokerUnderTest(bootstrap_servers=wanted, data=Path(data) if data else None)
    else:
        with penstock.Broker(data=directory, config=settings) as broker:
            yield BrokerUnderTest(bootstrap_servers=broker.bootstrap_servers, data=directory)


def _wait_until_led(bootstrap_servers: str, topic: str) -> None:
    deadline = time.monotonic() + 180
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "watermarks"})
    for partition in range(PARTITIONS):
        while True:
            try:
                consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
                break
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
    consumer.close()
