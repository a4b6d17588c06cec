"""A partition's records: sent, read by clients, and read from a broker's own files.

A broker's stored records are read from its log dir, because clients see only committed ones.
"""

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.stored_batches import read_stored

from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import FetchFrom, Produced
from penstock.model.cluster import BrokerId
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.testing import Cluster

ALL = -1
LEADER = 1


def create_on(
    cluster: Cluster, topic: str, brokers: tuple[int, ...], config: Mapping[str, str] | None = None
) -> None:
    """Creates a topic with one partition on these brokers; the first one leads."""
    replicas = tuple(map(BrokerId, brokers))
    new = NewTopic(name=topic, assignment={0: replicas}, configs=dict(config or {}))
    cluster.ask(lambda client: client.admin.create_topics([new]))
    cluster.wait_in_sync(topic, 0, len(brokers))


def send(cluster: Cluster, topic: str, value: str, *, acks: int = ALL, partition: int = 0) -> int:
    """Returns the offset of the record."""
    batch = make_batch(value)
    tp = TopicPartition(topic, partition)
    produced: Produced = cluster.ask(lambda client: client.produce(tp, batch, acks=acks))
    return int(produced.base_offset)


class ConnectedClient:
    """A client that keeps its metadata and connections. A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._runner = asyncio.Runner()
        self._client = ClusterClient(cluster.bootstrap_servers)

    def __enter__(self) -> Self:
        self._runner.run(self._client.connect())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def send(self, topic: str, value: str, *, acks: int = ALL) -> None:
        tp, batch = TopicPartition(topic, 0), make_batch(value)
        self._runner.run(self._client.produce(tp, batch, acks=acks))

    def read(self, topic: str) -> list[str]:
        wanted = FetchFrom(TopicPartition(topic, 0), Offset(0))
        (fetched,) = self._runner.run(self._client.fetch([wanted], max_wait_ms=0))
        return _values(fetched.batches)


def make_batch(value: str) -> bytearray:
    return build_batch([Record(Offset(0), int(time.time() * 1000), None, value.encode(), ())])


def read(cluster: Cluster, topic: str, partition: int = 0) -> list[str]:
    """All committed records, as a consumer sees them; they must fit in one fetch."""
    wanted = FetchFrom(TopicPartition(topic, partition), Offset(0))
    (fetched,) = cluster.ask(lambda client: client.fetch([wanted], max_wait_ms=0))
    return _values(fetched.batches)


def stored(cluster: Cluster, broker_id: int, topic: str, partition: int = 0) -> list[str]:
    """The records in the broker's log dir, committed or not, whether it runs or not."""
    return _values(read_stored(cluster.data(broker_id), topic, partition))


def wait_stored(cluster: Cluster, broker_id: int, topic: str, values: list[str]) -> None:
    cluster.wait(
        lambda: stored(cluster, broker_id, topic), lambda read_values: read_values == values
    )


def _values(batches: bytes | memoryview) -> list[str]:
    """Skips a batch that is still being written."""
    return [
        (record.value or b"").decode()
        for position, header in iter_headers(batches)
        for record in iter_records(batches[position : position + header.size])
    ]
