"""The brokers that the outside programs connect to: one Penstock broker, or three on ZooKeeper.

A compacted topic that was overwritten many times and cleaned is created once, on first use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

import penstock
from penstock.protocol.batch import iter_headers
from penstock.testing import Cluster

KEYS = 100
ROUNDS = 80
CLEANING_TIMEOUT_S = 120.0
# Frequent compaction, so that the programs do not wait for it.
SETTINGS = {"log.cleaner.backoff.ms": "100"}
CLUSTER_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}

CreateTopic = Callable[..., None]


class CompactedTopic(NamedTuple):
    """A topic with one partition: every key was written in every round, and all but the latest
    cleaned."""

    topic: str
    keys: int
    last_round: int
    written: int


class Brokers:
    """One broker, or a cluster, as an outside program sees it. Owned by `open_brokers`."""

    def __init__(
        self,
        count: int,
        bootstrap_servers: str,
        folders: Sequence[Path],
        create_topic: CreateTopic,
    ) -> None:
        self.count = count
        self.replication = count
        self.bootstrap_servers = bootstrap_servers
        self._folders = folders
        self._create_topic = create_topic
        self._compacted: CompactedTopic | None = None

    def compacted_topic(self) -> CompactedTopic:
        if self._compacted is None:
            self._compacted = self._make_compacted()
        return self._compacted

    def _make_compacted(self) -> CompactedTopic:
        topic = "outside-compacted"
        self._create_topic(
            topic, partitions=1, replication_factor=self.replication, config=_COMPACTED
        )
        _overwrite(self.bootstrap_servers, topic)
        self._wait_cleaned(topic)
        return CompactedTopic(topic, KEYS, ROUNDS - 1, KEYS * ROUNDS)

    def _wait_cleaned(self, topic: str) -> None:
        deadline = time.monotonic() + CLEANING_TIMEOUT_S
        while max(_count_records(folder / f"{topic}-0") for folder in self._folders) > KEYS * 10:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} was not cleaned in {CLEANING_TIMEOUT_S:g} s")
            time.sleep(0.1)


@contextmanager
def open_brokers(count: int, folder: Path) -> Iterator[Brokers]:
    """Writes the brokers' logs into `folder` at the end."""
    if count == 1:
        with penstock.Broker(config=SETTINGS) as broker:
            try:
                yield Brokers(1, broker.bootstrap_servers, [broker.data], broker.create_topic)
            finally:
                (folder / "broker.log").write_text(broker.logs())
        return
    with Cluster(brokers=count, config=CLUSTER_SETTINGS) as cluster:
        folders = [cluster.data(broker_id) for broker_id in cluster.running]
        try:
            yield Brokers(count, cluster.bootstrap_servers, folders, cluster.create_topic)
        finally:
            for broker_id in cluster.running:
                (folder / f"broker-{broker_id}.log").write_text(cluster.logs(broker_id))


def _overwrite(bootstrap_servers: str, topic: str) -> None:
    """Writes each round as a separate batch, so that cleaning empties whole batches."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
    for number in range(ROUNDS):
        for key in range(KEYS):
            value = f"round-{number} of {key}"
            producer.produce(topic, value, key=f"key-{key}", on_delivery=on_delivery)
        producer.flush()
    assert not failures, failures


def _count_records(folder: Path) -> int:
    """Reports nothing as cleaned if the cleaner replaces a segment meanwhile; the caller polls."""
    try:
        contents = [path.read_bytes() for path in sorted(folder.glob("*.log"))]
    except FileNotFoundError:
        return KEYS * ROUNDS
    return sum(header.record_count for content in contents for _, header in iter_headers(content))
