"""aiokafka as a client of the smoke test. Its loop runs during a call only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from tests.outside.python.smoke import (
    READ_TIMEOUT_S,
    RETENTION,
    IsEnd,
    Message,
    messages_of,
    run,
    text_of,
)


class AiokafkaSmoke:
    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers

    def create_topic(self, topic: str, partitions: int, replication: int) -> None:
        new = NewTopic(topic, partitions, replication, topic_configs=dict([RETENTION]))
        self._ask(lambda admin: admin.create_topics([new]))

    def replicas(self, topic: str) -> list[int]:
        (described,) = self._ask(lambda admin: admin.describe_topics([topic]))
        return [len(partition["replicas"]) for partition in described["partitions"]]

    def setting(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})
        (response,) = self._ask(lambda admin: admin.describe_configs([resource]))
        ((_error, _message, _type, _topic, entries),) = response.resources
        return str({entry[0]: entry[1] for entry in entries}[name])

    def produce(self, topic: str, word: str, codec: str, count: int) -> None:
        async def produce() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._servers,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=True,
            )
            async with producer:
                await _send(producer, topic, word, count)

        asyncio.run(produce())

    def read(self, topic: str, group: str, is_end: IsEnd) -> list[Message]:
        async def read() -> list[Message]:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=self._servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
            messages: list[Message] = []
            deadline = time.monotonic() + READ_TIMEOUT_S
            async with consumer:
                while not is_end(messages):
                    assert time.monotonic() < deadline, f"only {len(messages)} of {topic}"
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        messages += map(_to_message, records)
                await consumer.commit()
            return messages

        return asyncio.run(read())

    def transact(self, transactional_id: str, topic: str, words: dict[str, bool]) -> None:
        async def transact() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._servers, transactional_id=transactional_id
            )
            async with producer:
                for word, is_committed in words.items():
                    await producer.begin_transaction()
                    await _send(producer, topic, word, 10)
                    if is_committed:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()

        asyncio.run(transact())

    def group_state(self, group: str) -> str:
        (response,) = self._ask(lambda admin: admin.describe_consumer_groups([group]))
        return str(response.groups[0][2])

    def committed(self, group: str, topic: str) -> dict[int, int]:
        offsets = self._ask(lambda admin: admin.list_consumer_group_offsets(group))
        return {tp.partition: row.offset for tp, row in offsets.items() if tp.topic == topic}

    def end_offsets(self, topic: str) -> dict[int, int]:
        async def read() -> dict[int, int]:
            async with AIOKafkaConsumer(topic, bootstrap_servers=self._servers) as consumer:
                partitions = consumer.partitions_for_topic(topic) or set()
                ends = await consumer.end_offsets([TopicPartition(topic, p) for p in partitions])
            return {tp.partition: offset for tp, offset in ends.items()}

        return asyncio.run(read())

    def delete_topic(self, topic: str) -> None:
        self._ask(lambda admin: admin.delete_topics([topic]))

    def list_topics(self) -> list[str]:
        return list(self._ask(lambda admin: admin.list_topics()))

    def _ask(self, question: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._servers)
            await admin.start()
            try:
                return await question(admin)
            finally:
                await admin.close()

        return asyncio.run(ask())


async def _send(producer: AIOKafkaProducer, topic: str, word: str, count: int) -> None:
    sent = [
        await producer.send(topic, value, key=key, headers=headers)
        for key, value, headers in messages_of(word, count)
    ]
    await asyncio.gather(*sent)


def _to_message(record: Any) -> Message:
    codec = text_of(dict(record.headers).get("codec"))
    key, value = text_of(record.key), text_of(record.value)
    return Message(record.partition, record.offset, key, value, codec)


if __name__ == "__main__":
    run(AiokafkaSmoke)
