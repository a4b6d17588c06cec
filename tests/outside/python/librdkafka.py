"""confluent-kafka (librdkafka) as a client of the smoke test."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from tests.outside.python.smoke import (
    READ_TIMEOUT_S,
    RETENTION,
    IsEnd,
    Message,
    messages_of,
    run,
    text_of,
)


class ConfluentKafkaSmoke:
    def __init__(self, bootstrap_servers: str) -> None:
        self._servers: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
        self._admin = AdminClient(self._servers)

    def create_topic(self, topic: str, partitions: int, replication: int) -> None:
        new = NewTopic(topic, partitions, replication, config=dict([RETENTION]))
        self._admin.create_topics([new])[topic].result(timeout=60)

    def replicas(self, topic: str) -> list[int]:
        partitions = self._admin.list_topics(topic, timeout=60).topics[topic].partitions
        return [len(partition.replicas) for partition in partitions.values()]

    def setting(self, topic: str, name: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return str(self._admin.describe_configs([resource])[resource].result(60)[name].value)

    def produce(self, topic: str, word: str, codec: str, count: int) -> None:
        config = {"compression.type": codec, "enable.idempotence": True, "linger.ms": 20}
        producer = confluent_kafka.Producer({**self._servers, **config})
        _send(producer, topic, word, count)

    def read(self, topic: str, group: str, is_end: IsEnd) -> list[Message]:
        config = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        consumer = confluent_kafka.Consumer({**self._servers, **config})
        consumer.subscribe([topic])
        messages: list[Message] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not is_end(messages):
            assert time.monotonic() < deadline, f"only {len(messages)} messages of {topic}"
            record = consumer.poll(0.5)
            if record is not None:
                assert record.error() is None, record.error()
                messages.append(_to_message(record))
        consumer.commit(asynchronous=False)
        consumer.close()
        return messages

    def transact(self, transactional_id: str, topic: str, words: dict[str, bool]) -> None:
        config = {"transactional.id": transactional_id}
        producer = confluent_kafka.Producer({**self._servers, **config})
        producer.init_transactions(60)
        for word, is_committed in words.items():
            producer.begin_transaction()
            _send(producer, topic, word, 10)
            if is_committed:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)

    def group_state(self, group: str) -> str:
        described = self._admin.describe_consumer_groups([group])[group].result(timeout=60)
        return str(described.state.name)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        request = confluent_kafka.ConsumerGroupTopicPartitions(group)
        offsets = self._admin.list_consumer_group_offsets([request])[group].result(timeout=60)
        rows = offsets.topic_partitions
        return {row.partition: row.offset for row in rows if row.topic == topic}

    def end_offsets(self, topic: str) -> dict[int, int]:
        consumer = confluent_kafka.Consumer({**self._servers, "group.id": "ends"})
        tps = [
            confluent_kafka.TopicPartition(topic, partition)
            for partition in consumer.list_topics(topic, timeout=60).topics[topic].partitions
        ]
        ends = {tp.partition: consumer.get_watermark_offsets(tp, timeout=60)[1] for tp in tps}
        consumer.close()
        return ends

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(timeout=60)

    def list_topics(self) -> list[str]:
        return list(self._admin.list_topics(timeout=60).topics)


def _send(producer: confluent_kafka.Producer, topic: str, word: str, count: int) -> None:
    failures: list[object] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for key, value, headers in messages_of(word, count):
        producer.produce(topic, value, key, headers=list(headers), on_delivery=on_delivery)
    assert producer.flush(60) == 0, "not delivered in time"
    assert not failures, failures


def _to_message(record: Any) -> Message:
    codec = text_of(dict(record.headers() or []).get("codec"))
    key, value = text_of(record.key()), text_of(record.value())
    return Message(record.partition(), record.offset(), key, value, codec)


if __name__ == "__main__":
    run(ConfluentKafkaSmoke)
