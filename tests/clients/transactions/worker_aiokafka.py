"""aiokafka as a transactional client. Its loop runs during a command only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokafka import (  # type: ignore[import-untyped]
    AIOKafkaConsumer,
    AIOKafkaProducer,
    TopicPartition,
)
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]
from tests.clients.transactions.worker import (
    INSTANCE,
    TAKE_MOST,
    ClientFailed,
    Taken,
    delay_headers,
)

POLL_MS = 200


class Worker:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._runner = asyncio.Runner()
        self._group = ""
        self._producer: Any = None
        self._consumer: Any = None
        self._reached: dict[Any, int] = {}

    def open(self, transactional_id: str, timeout_ms: int) -> None:
        async def start() -> Any:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        self._producer = self._run(start)

    def begin(self) -> None:
        self._run(lambda: self._producer.begin_transaction())

    def send(self, topic: str, partition: int, values: Sequence[str], delay_ms: int) -> None:
        headers = delay_headers(delay_ms)

        async def send() -> None:
            sent = [
                await self._producer.send(
                    topic, value.encode(), partition=partition, headers=headers
                )
                for value in values
            ]
            await asyncio.gather(*sent)

        self._run(send)

    def commit(self) -> None:
        self._run(lambda: self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(lambda: self._producer.abort_transaction())

    def read(self, topic: str, partition: int, isolation: str) -> list[str]:
        return [
            record.value.decode()
            for record in self._run(lambda: self._read(TopicPartition(topic, partition), isolation))
        ]

    async def _read(self, tp: Any, isolation: str) -> list[Any]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            isolation_level=isolation,
            enable_auto_commit=False,
            fetch_max_wait_ms=10,
        )
        await consumer.start()
        records: list[Any] = []
        try:
            consumer.assign([tp])
            await consumer.seek_to_beginning(tp)
            end = (await consumer.end_offsets([tp]))[tp]
            while await consumer.position(tp) < end:
                records += (await consumer.getmany(tp, timeout_ms=POLL_MS)).get(tp, [])
        finally:
            await consumer.stop()
        return records

    def join(self, group: str, topic: str) -> None:
        async def start() -> Any:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=self._bootstrap,
                group_id=group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                group_instance_id=INSTANCE,
                fetch_max_wait_ms=10,
            )
            await consumer.start()
            return consumer

        self._group, self._reached = group, {}
        self._consumer = self._run(start)

    def take(self) -> list[Taken]:
        async def poll() -> dict[Any, list[Any]]:
            records: dict[Any, list[Any]] = {}
            while not records:
                records = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=TAKE_MOST)
            return records

        records = [record for records in self._run(poll).values() for record in records]
        for record in records:
            self._reached[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return [Taken(record.partition, record.offset, record.value.decode()) for record in records]

    def send_offsets(self) -> None:
        """Uses the group id alone, because aiokafka supports no more."""
        self._run(lambda: self._producer.send_offsets_to_transaction(self._reached, self._group))

    def close(self) -> None:
        for consumer in (self._consumer, self._producer):
            if consumer is not None:
                self._runner.run(consumer.stop())
        self._consumer = self._producer = None

    def _run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await call()

        try:
            return self._runner.run(run())
        except KafkaError as error:
            raise ClientFailed(type(error).__name__, str(error)) from error
