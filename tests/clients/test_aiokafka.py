"""aiokafka against the broker, on one event loop for the whole module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from aiokafka import (  # type: ignore[import-untyped]
    AIOKafkaConsumer,
    AIOKafkaProducer,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
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

pytestmark = pytest.mark.xdist_group("client-aiokafka")

CODECS = {"none": None}  # the other codecs have their usual names
ACKS = {"0": 0, "1": 1}


class AioKafka:
    sets_timestamps = True

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._runner = asyncio.Runner()
        self._consumer: Any = self._runner.run(self._start_consumer())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()

    async def _start_consumer(self) -> Any:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            enable_auto_commit=False,
            fetch_max_wait_ms=10,
        )
        await consumer.start()
        return consumer

    def create_topic(self, topic: str, partitions: int) -> None:
        self._runner.run(self._create_topic(topic, partitions))

    async def _create_topic(self, topic: str, partitions: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
        await admin.start()
        try:
            answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
        finally:
            await admin.close()
        assert [error[1] for error in answer.topic_errors] == [0], answer

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str,
        acks: str,
        headers: Headers = HEADERS,
    ) -> None:
        self._runner.run(self._produce(topic, messages, codec, acks, headers))

    async def _produce(
        self, topic: str, messages: Sequence[Message], codec: str, acks: str, headers: Headers
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap_servers,
            compression_type=CODECS.get(codec, codec),
            acks=ACKS.get(acks, acks),
            enable_idempotence=acks == "all",
            linger_ms=200,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    timestamp_ms=message.timestamp_ms,
                    headers=list(headers),
                )
                for message in messages
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    def end_offset(self, topic: str, partition: int) -> int:
        tp = TopicPartition(topic, partition)
        return int(self._runner.run(self._consumer.end_offsets([tp]))[tp])

    def find_offset(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        tp = TopicPartition(topic, partition)
        offset = self._runner.run(self._consumer.offsets_for_times({tp: timestamp_ms}))[tp]
        return None if offset is None else int(offset.offset)

    def read(self, topic: str, partition: int, start: Start, end_offset: int) -> list[Received]:
        offset = start.offset
        if start.timestamp_ms is not None:
            offset = self.find_offset(topic, partition, start.timestamp_ms)
        return self._runner.run(self._read(TopicPartition(topic, partition), offset, end_offset))

    async def _read(self, tp: Any, offset: int | None, end_offset: int) -> list[Received]:
        self._consumer.assign([tp])
        if offset is None:
            await self._consumer.seek_to_beginning(tp)
        else:
            self._consumer.seek(tp, offset)
        received: list[Received] = []
        async with asyncio.timeout(READ_TIMEOUT_S):
            while await self._consumer.position(tp) < end_offset:
                records = await self._consumer.getmany(tp, timeout_ms=500)
                received += map(_to_received, records.get(tp, ()))
        return received


def _to_received(record: Any) -> Received:
    headers = tuple((name, bytes(content)) for name, content in record.headers)
    return Received(
        record.partition, record.offset, record.timestamp, record.key, record.value, headers
    )


@pytest.fixture(scope="module")
def client(broker: BrokerUnderTest) -> Iterator[AioKafka]:
    client = AioKafka(broker.bootstrap_servers)
    yield client
    client.close()


class TestAioKafka(ClientScenarios):
    pass
