"""Topics for Spark to read: create, fill record by record, delete records, add partitions.

librdkafka writes the records, so that neither connector reads what it wrote itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, Producer

from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST
from penstock.model.ids import Offset, TopicPartition

DEADLINE_S = 120
_Result = TypeVar("_Result")

Headers = Sequence[tuple[str, bytes | None]]


class Sent(NamedTuple):
    """A record to send; without a timestamp it gets the producer's."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int | None = None
    headers: Headers = ()


def ask(servers: str, work: Callable[[ClusterClient], Awaitable[_Result]]) -> _Result:
    """Runs a coroutine with a client of this cluster."""

    async def run() -> _Result:
        async with asyncio.timeout(DEADLINE_S), ClusterClient(servers) as client:
            return await work(client)

    return asyncio.run(run())


def create_topic(
    servers: str,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
) -> str:
    topic = NewTopic(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=dict(config or {}),
    )

    async def create(client: ClusterClient) -> None:
        await client.admin.create_topics([topic])
        # Kafka responds before leaders are elected; the client waits for them.
        await client.list_offsets(dict.fromkeys(_partitions(name, partitions), LATEST))

    ask(servers, create)
    return name


def send(servers: str, topic: str, records: Iterable[Sent], *, codec: str = "none") -> None:
    """Returns when all are acknowledged; the records of one call share batches."""
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    settings = {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 20}
    producer = Producer(settings)
    for record in records:
        more: dict[str, Any] = {}
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if record.headers:
            more["headers"] = list(record.headers)
        producer.produce(
            topic, record.value, record.key, record.partition, on_delivery=note, **more
        )
    assert producer.flush(DEADLINE_S) == 0
    assert not failures, failures[:3]


def add_partitions(servers: str, topic: str, partitions: int) -> None:
    ask(servers, lambda client: client.admin.create_partitions({topic: partitions}))


def delete_topic(servers: str, topic: str) -> None:
    ask(servers, lambda client: client.admin.delete_topics([topic]))


def delete_records(servers: str, topic: str, log_start_offsets: Mapping[int, int]) -> None:
    """Deletes the records before these offsets."""
    before = {
        TopicPartition(topic, partition): Offset(offset)
        for partition, offset in log_start_offsets.items()
    }
    ask(servers, lambda client: client.admin.delete_records(before))


def end_offsets(servers: str, topic: str, partitions: int) -> dict[int, int]:
    return _offsets(servers, topic, partitions, LATEST)


def start_offsets(servers: str, topic: str, partitions: int) -> dict[int, int]:
    return _offsets(servers, topic, partitions, EARLIEST)


def wait_until(what: str, is_so: Callable[[], bool], *, timeout_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not after {timeout_s:.0f} s"
        time.sleep(0.02)


def _offsets(servers: str, topic: str, partitions: int, which: int) -> dict[int, int]:
    wanted = dict.fromkeys(_partitions(topic, partitions), which)
    listed = ask(servers, lambda client: client.list_offsets(wanted))
    return {tp.partition: entry.offset for tp, entry in listed.items()}


def _partitions(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(partitions)]
