"""Partitions that are added while clients run are used by `penstock.Producer` and `Consumer` within
the configured time; on a real broker: Penstock's own, or Kafka."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable

import pytest
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.under_test import BrokerUnderTest

import penstock
from penstock import TopicPartition
from penstock.client.data_calls import LATEST

pytestmark = pytest.mark.xdist_group("clients")

MAX_AGE_MS = 300
PATIENCE_S = 240.0  # however slow the machine is
ALL_PARTITIONS = {0, 1, 2}


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline


@pytest.mark.parametrize("partitioner", ["hash", "round_robin"])
def test_a_running_producer_uses_new_partitions(broker: BrokerUnderTest, partitioner: str) -> None:
    topic = new_topic(broker, partitions=1)
    keys = map(str, itertools.count())
    with penstock.Producer(
        broker.bootstrap_servers,
        partitioner=partitioner,  # type: ignore[arg-type]
        metadata_max_age_ms=MAX_AGE_MS,
    ) as producer:
        used = {producer.send_and_wait(topic, b"v", key=next(keys)).partition for _ in range(8)}
        assert used == {0}
        ask(broker, lambda client: client.admin.create_partitions({topic: 3}))

        def uses_all() -> bool:
            used.add(producer.send_and_wait(topic, b"v", key=next(keys)).partition)
            return used == ALL_PARTITIONS

        wait(uses_all)


@pytest.mark.parametrize("protocol", ["none", "classic", "consumer"])
def test_a_running_consumer_reads_new_partitions(broker: BrokerUnderTest, protocol: str) -> None:
    topic = new_topic(broker, partitions=1)
    config = {} if protocol == "none" else {"group.protocol": protocol}
    write(broker, topic, [0])
    with penstock.Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group=None if protocol == "none" else new_name(),
        from_beginning=True,
        connect_timeout_s=PATIENCE_S,
        metadata_max_age_ms=MAX_AGE_MS,
        config=config,
    ) as consumer:
        wait(lambda: len(consumer.poll_batch(1, timeout_s=0.2)) == 1)
        ask(broker, lambda client: client.admin.create_partitions({topic: 3}))
        ask(broker, lambda client: client.list_offsets(dict.fromkeys(new_ones(topic), LATEST)))
        write(broker, topic, ALL_PARTITIONS)
        read: set[int] = set()

        def reads_all() -> bool:
            read.update(message.partition for message in consumer.poll_batch(100, timeout_s=0.2))
            return read == ALL_PARTITIONS

        wait(reads_all)


def new_ones(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in ALL_PARTITIONS]


def write(broker: BrokerUnderTest, topic: str, partitions: Iterable[int]) -> None:
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for number in partitions:
            producer.send(topic, b"v", partition=number)


def test_javas_name_of_the_setting_means_the_same(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(
        broker.bootstrap_servers,
        partitioner="round_robin",
        config={"metadata.max.age.ms": MAX_AGE_MS},
    ) as producer:
        producer.send_and_wait(topic, b"v")
        ask(broker, lambda client: client.admin.create_partitions({topic: 2}))
        wait(lambda: producer.send_and_wait(topic, b"v").partition == 1)
