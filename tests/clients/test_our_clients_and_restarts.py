"""Our client, producer and consumer while a Penstock broker stops and restarts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import FetchFrom
from penstock.client.errors import OutOfTime
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import Record, build_batch

pytestmark = pytest.mark.xdist_group("clients")

T0 = TopicPartition("t", 0)
BATCH = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"v")]))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[penstock.Broker]:
    """A broker that this test may stop and start."""
    broker = penstock.Broker(data=tmp_path)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def test_the_client_recovers_when_the_broker_is_back(own_broker: penstock.Broker) -> None:
    own_broker.create_topic("t", partitions=1)

    async def scenario() -> None:
        async with ClusterClient(own_broker.bootstrap_servers) as client:
            assert (await client.produce(T0, BATCH)).base_offset == 0
            await asyncio.to_thread(own_broker.stop)
            with pytest.raises(OutOfTime, match="refused"):
                await client.produce(T0, BATCH, timeout_ms=2_000)
            patient = asyncio.create_task(client.produce(T0, BATCH, timeout_ms=30_000))
            await asyncio.to_thread(own_broker.start)
            offset = (await patient).base_offset
            (got,) = await client.fetch([FetchFrom(T0, Offset(0))])
            assert got.high_watermark == offset + 1 == 2

    asyncio.run(scenario())


def test_producer_and_consumer_continue_when_the_broker_is_back(
    own_broker: penstock.Broker,
) -> None:
    own_broker.create_topic("t", partitions=1)
    servers = own_broker.bootstrap_servers
    with (
        penstock.Producer(servers) as producer,
        penstock.Consumer("t", bootstrap_servers=servers, timeout_s=180) as consumer,
    ):
        producer.send_and_wait("t", b"before")
        own_broker.stop()
        meanwhile = producer.send("t", b"meanwhile")
        own_broker.start()
        assert meanwhile.result(timeout=180).offset == 1
        producer.send_and_wait("t", b"after")
        read = [message.value for message in itertools.islice(consumer, 3)]
    assert read == [b"before", b"meanwhile", b"after"]


def test_reading_from_a_stopped_broker_fails_rather_than_ends(
    own_broker: penstock.Broker,
) -> None:
    own_broker.create_topic("t", partitions=1)
    servers = own_broker.bootstrap_servers
    with penstock.Producer(servers) as producer:
        producer.send_and_wait("t", b"one")
    with penstock.Consumer(
        "t", bootstrap_servers=servers, from_beginning=True, timeout_s=0.5
    ) as consumer:
        assert consumer.poll_batch(1, 30)[0].value == b"one"
        assert list(consumer) == []  # the broker has responded that there are no more records
        own_broker.stop()
        with pytest.raises(penstock.BrokersUnreachable, match=f"bootstrap {servers}"):
            list(consumer)
