"""kafka-python as a client of the smoke test."""

from __future__ import annotations

import time
from typing import Any

import kafka  # type: ignore[import-untyped]
from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from tests.outside.python.smoke import (
    READ_TIMEOUT_S,
    RETENTION,
    IsEnd,
    Message,
    messages_of,
    run,
    text_of,
)


class KafkaPythonSmoke:
    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap_servers)

    def create_topic(self, topic: str, partitions: int, replication: int) -> None:
        new = {"num_partitions": partitions, "replication_factor": replication}
        self._admin.create_topics({topic: new | {"configs": dict([RETENTION])}})

    def replicas(self, topic: str) -> list[int]:
        (described,) = self._admin.describe_topics([topic])
        return [len(partition["replica_nodes"]) for partition in described["partitions"]]

    def setting(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, [name])
        described = self._admin.describe_configs([resource], config_filter="all")
        return str(described["topic"][topic][name]["value"])

    def produce(self, topic: str, word: str, codec: str, count: int) -> None:
        compression = None if codec == "none" else codec
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._servers,
            compression_type=compression,
            acks="all",
            enable_idempotence=True,
        )
        _send(producer, topic, word, count)
        producer.close(timeout=60)

    def read(self, topic: str, group: str, is_end: IsEnd) -> list[Message]:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=self._servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        messages: list[Message] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not is_end(messages):
            assert time.monotonic() < deadline, f"only {len(messages)} messages of {topic}"
            for records in consumer.poll(timeout_ms=500).values():
                messages += map(_to_message, records)
        consumer.commit()
        consumer.close()
        return messages

    def transact(self, transactional_id: str, topic: str, words: dict[str, bool]) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._servers, transactional_id=transactional_id
        )
        producer.init_transactions()
        for word, is_committed in words.items():
            producer.begin_transaction()
            _send(producer, topic, word, 10)
            producer.commit_transaction() if is_committed else producer.abort_transaction()
        producer.close(timeout=60)

    def group_state(self, group: str) -> str:
        return str(self._admin.describe_groups([group])[group]["group_state"])

    def committed(self, group: str, topic: str) -> dict[int, int]:
        offsets = self._admin.list_group_offsets([group])[group]
        return {tp.partition: row.offset for tp, row in offsets.items() if tp.topic == topic}

    def end_offsets(self, topic: str) -> dict[int, int]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._servers)
        tps = [kafka.TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
        ends = consumer.end_offsets(tps)
        consumer.close()
        return {tp.partition: offset for tp, offset in ends.items()}

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def list_topics(self) -> list[str]:
        return list(self._admin.list_topics())


def _send(producer: Any, topic: str, word: str, count: int) -> None:
    sent = [
        producer.send(topic, key=key, value=value, headers=headers)
        for key, value, headers in messages_of(word, count)
    ]
    producer.flush(timeout=60)
    for future in sent:
        future.get(timeout=60)


def _to_message(record: Any) -> Message:
    codec = text_of(dict(record.headers).get("codec"))
    key, value = text_of(record.key), text_of(record.value)
    return Message(record.partition, record.offset, key, value, codec)


if __name__ == "__main__":
    run(KafkaPythonSmoke)
