"""Lag and ISR of three brokers, as kafka_exporter and our own metrics show them.

Both have the same names, so that one test holds for both: kafka_exporter is unmodified and knows
the brokers by Kafka's public requests only.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.kafka_jars import Say
from tests.outside.attempt import Unavailable
from tests.outside.packages import resolve_kafka_exporter
from tests.profile import is_long

from penstock.cli.broker_metrics import describe_brokers, parse_series
from penstock.client.cluster import ClusterClient
from penstock.model.cluster import BrokerId
from penstock.testing import Cluster

pytestmark = [
    pytest.mark.xdist_group("clients-outside"),
    pytest.mark.skipif(not is_long(), reason="three brokers, and a program that Go builds"),
    pytest.mark.timeout(1200),  # the first test also downloads and builds
]

TOPIC, GROUP = "orders", "billing"
SENT = (5, 7, 11)  # records by partition
COMMITTED = (2, 7, 4)
SETTINGS = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}

Series = dict[str, float]
Read = Callable[[], Series]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, partitions=len(SENT), replication_factor=3)
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = Producer({**servers, "acks": "all"})
        for partition, count in enumerate(SENT):
            for _ in range(count):
                producer.produce(TOPIC, b"value", partition=partition)
        assert producer.flush(60) == 0
        consumer = Consumer({**servers, "group.id": GROUP, "enable.auto.commit": False})
        offsets = [TopicPartition(TOPIC, number, at) for number, at in enumerate(COMMITTED)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        yield cluster


@pytest.fixture(params=["penstock", "kafka_exporter"])
def read(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, say: Say
) -> Iterator[Read]:
    if request.param == "penstock":
        yield lambda: read_brokers(cluster)
        return
    try:
        program = resolve_kafka_exporter(say)
    except Unavailable as error:
        pytest.skip(f"skipped: {error}")
    with run_exporter(program, cluster, tmp_path) as read_exporter:
        yield read_exporter


def read_brokers(cluster: Cluster) -> Series:
    """The brokers' own series together, as Prometheus sees them: each partition has one leader."""
    names = ("kafka_topic", "kafka_consumergroup", "kafka_broker")

    async def describe(client: ClusterClient) -> Series:
        metrics = await describe_brokers(client, map(BrokerId, cluster.running), names)
        return {} if metrics.errors else metrics.total()  # a broker is not registered yet

    return cluster.ask(describe)


@contextmanager
def run_exporter(program: str, cluster: Cluster, folder: Path, *options: str) -> Iterator[Read]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    servers = cluster.bootstrap_servers.split(",")
    command = [program, f"--web.listen-address=127.0.0.1:{port}"]
    command += [f"--kafka.server={server}" for server in servers]
    command += ["--refresh.metadata=1s", *options]
    with (folder / "kafka_exporter.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:

        def scrape() -> Series:
            assert process.poll() is None, (folder / "kafka_exporter.log").read_text()
            try:
                with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
                    return parse_series(response.read().decode())
            except OSError:
                return {}  # it does not listen yet

        cluster.wait(scrape, lambda series: f'kafka_topic_partitions{{topic="{TOPIC}"}}' in series)
        yield scrape
    finally:
        process.terminate()
        process.wait()


def of_partition(name: str, partition: int, group: str = "") -> str:
    """The key of a series; both sort its labels by name."""
    labels = f'partition="{partition}",topic="{TOPIC}"'
    return f'{name}{{consumergroup="{group}",{labels}}}' if group else f"{name}{{{labels}}}"


def sort_labels(series: Series) -> Series:
    """kafka_exporter writes labels by name."""
    keys = {}
    for key, value in series.items():
        name, brace, labels = key.rstrip("}").partition("{")
        keys[f"{name}{{{','.join(sorted(labels.split(',')))}}}" if brace else name] = value
    return keys


def test_offsets_lag_and_replicas_are_what_clients_did(cluster: Cluster, read: Read) -> None:
    topic = f'{{consumergroup="{GROUP}",topic="{TOPIC}"}}'
    lag_sum = sum(SENT) - sum(COMMITTED)

    def is_current(series: Series) -> bool:
        """Followers learn of the last high watermark with their next fetch."""
        return sort_labels(series).get(f"kafka_consumergroup_lag_sum{topic}") == lag_sum

    series = sort_labels(cluster.wait(read, is_current))
    assert series["kafka_brokers"] == 3
    assert sum(value for key, value in series.items() if key.startswith("kafka_broker_info")) == 3
    assert series[f'kafka_topic_partitions{{topic="{TOPIC}"}}'] == len(SENT)
    for partition, (sent, committed) in enumerate(zip(SENT, COMMITTED, strict=True)):
        leader = cluster.leader(TOPIC, partition)
        replicas = cluster.partition(TOPIC, partition).replicas
        expected = {
            "current_offset": sent,
            "oldest_offset": 0,
            "in_sync_replica": 3,
            "leader": leader,
            "leader_is_preferred": int(leader == replicas[0]),
            "replicas": 3,
            "under_replicated_partition": 0,
        }
        for name, value in expected.items():
            assert series[of_partition(f"kafka_topic_partition_{name}", partition)] == value, name
        prefix = "kafka_consumergroup"
        assert series[of_partition(f"{prefix}_current_offset", partition, GROUP)] == committed
        assert series[of_partition(f"{prefix}_lag", partition, GROUP)] == sent - committed
    assert series[f"kafka_consumergroup_current_offset_sum{topic}"] == sum(COMMITTED)
    assert series[f"kafka_consumergroup_lag_sum{topic}"] == lag_sum
    assert series[f'kafka_consumergroup_members{{consumergroup="{GROUP}"}}'] == 0


def test_a_stopped_broker_leaves_every_isr(cluster: Cluster, read: Read) -> None:
    def in_sync(count: int) -> Callable[[Series], bool]:
        def is_so(scraped: Series) -> bool:
            series = sort_labels(scraped)
            return series.get("kafka_brokers") == count and all(
                series.get(of_partition("kafka_topic_partition_in_sync_replica", number)) == count
                and series.get(
                    of_partition("kafka_topic_partition_under_replicated_partition", number)
                )
                == int(count < 3)
                for number in range(len(SENT))
            )

        return is_so

    cluster.wait(read, in_sync(3))
    cluster.stop(3)
    try:
        assert cluster.wait(read, in_sync(2))["kafka_brokers"] == 2
    finally:
        cluster.start(3)
    cluster.wait(read, in_sync(3))
