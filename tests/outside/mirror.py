"""MirrorMaker 2 from the brokers to another Penstock broker: records, configs, group offsets."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from tests.interop.kafka_jars import KafkaJars
from tests.outside.attempt import Attempt, OutsideFailed

import penstock

STEPS = ("records", "settings", "later records", "group offsets")
RECORDS = 200
PARTITIONS = 2

_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"

Row = tuple[int, bytes, bytes, tuple[tuple[str, bytes], ...]]


def run_mirror(jars: KafkaJars, attempt: Attempt) -> None:
    topic, source = f"{attempt.prefix}-mirrored", attempt.brokers.bootstrap_servers
    new = NewTopic(
        topic, PARTITIONS, attempt.brokers.replication, config={"retention.ms": "86400000"}
    )
    admin = AdminClient({"bootstrap.servers": source})
    admin.create_topics([new])[topic].result(timeout=60)
    _produce(source, topic, "first")
    _read(attempt, source, topic, f"{attempt.prefix}-readers", RECORDS)
    with penstock.Broker() as broker:
        target = broker.bootstrap_servers
        path = attempt.folder / "mirror.properties"
        settings = _config(attempt, source, target, topic)
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with attempt.started("mirror-maker", jars.command(_MAIN, str(path), heap_mib=512)):
            _check(attempt, source, target, topic)


def _check(attempt: Attempt, source: str, target: str, topic: str) -> None:
    mirrored = f"source.{topic}"
    admin = AdminClient({"bootstrap.servers": target})
    attempt.wait_for(
        f"{mirrored} is there",
        lambda: mirrored in admin.list_topics(timeout=60).topics,
        "mirror-maker",
    )
    _check_same(attempt, source, target, topic, RECORDS)
    attempt.ok("records")
    resource = ConfigResource(ResourceType.TOPIC, mirrored)
    retention = admin.describe_configs([resource])[resource].result(timeout=60)["retention.ms"]
    if retention.value != "86400000":
        raise OutsideFailed(f"retention.ms of {mirrored} is {retention.value}")
    attempt.ok("settings")
    _produce(source, topic, "later")
    _check_same(attempt, source, target, topic, 2 * RECORDS)
    attempt.ok("later records")
    _read(attempt, source, topic, f"{attempt.prefix}-readers", RECORDS)
    attempt.wait_for(
        "the group's offsets are synchronised",
        lambda: _committed(admin, f"{attempt.prefix}-readers", mirrored) == 2 * RECORDS,
        "mirror-maker",
    )
    attempt.ok("group offsets")


def _config(attempt: Attempt, source: str, target: str, topic: str) -> dict[str, Any]:
    internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
    storage = ("offset.storage", "status.storage", "config.storage")
    return {
        "clusters": "source, target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "source->target.topics": topic,
        "source->target.groups": f"{attempt.prefix}-readers",
        "source->target.sync.group.offsets.enabled": "true",
        "source->target.sync.group.offsets.interval.seconds": "1",
        "source->target.emit.checkpoints.interval.seconds": "1",
        "source->target.refresh.topics.interval.seconds": "2",
        "source->target.refresh.groups.interval.seconds": "2",
        "source->target.offset.lag.max": "0",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": attempt.brokers.replication,
        **{f"{name}.replication.factor": "1" for name in (*internal[:2], *storage)},
        "dedicated.mode.enable.internal.rest": "false",
    }


def _produce(servers: str, topic: str, word: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce(
            topic, f"{word}-{number}", f"key-{number}", headers=[("word", word.encode())]
        )
    assert producer.flush(60) == 0, "not delivered in time"


def _check_same(attempt: Attempt, source: str, target: str, topic: str, count: int) -> None:
    """Checks that every record is in the same partition, with its key and headers, in the same
    order."""
    written = _read(attempt, source, topic, f"w-{time.monotonic_ns()}", count)
    mirrored = _read(attempt, target, f"source.{topic}", f"m-{time.monotonic_ns()}", count)
    for partition in range(PARTITIONS):
        pair = [[row for row in rows if row[0] == partition] for rows in (written, mirrored)]
        if pair[0] != pair[1]:
            raise OutsideFailed(f"partition {partition} differs from its mirror")


def _read(attempt: Attempt, servers: str, topic: str, group: str, count: int) -> list[Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    rows: list[Row] = []
    while len(rows) < count:
        record = consumer.poll(0.5)
        if time.monotonic() > attempt.deadline:
            raise OutsideFailed(f"{len(rows)} of {count} records of {topic} in time")
        if record is not None and record.error() is None:
            rows.append(_to_row(record))
    consumer.commit(asynchronous=False)
    consumer.close()
    return rows


def _to_row(record: Any) -> Row:
    headers = tuple((name, bytes(content)) for name, content in record.headers() or [])
    return record.partition(), record.key(), record.value(), headers


def _committed(admin: AdminClient, group: str, topic: str) -> int:
    request = ConsumerGroupTopicPartitions(group)
    offsets = admin.list_consumer_group_offsets([request])[group].result(timeout=60)
    return sum(row.offset for row in offsets.topic_partitions if row.topic == topic)
