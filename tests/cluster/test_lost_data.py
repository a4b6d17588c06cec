"""A broker restarts without some of its data: nothing is lost that another replica has."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.cluster.records import ConnectedClient, create_on, read, send, stored, wait_stored
from tests.profile import is_long
from tests.stored_batches import on_segments

from penstock.model.admin import ElectionType
from penstock.model.cluster import NO_BROKER
from penstock.model.ids import TopicPartition
from penstock.testing import Cluster

pytestmark = [pytest.mark.xdist_group("cluster"), on_segments]

CONFIG = {
    "zookeeper.session.timeout.ms": 4000,
    "replica.high.watermark.checkpoint.interval.ms": 200,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        yield cluster


def lose_folder(cluster: Cluster, topic: str, copy: Path) -> None:
    shutil.rmtree(cluster.data(1) / f"{topic}-0")


def lose_newest_segments(cluster: Cluster, topic: str, copy: Path) -> None:
    keep_segments(cluster, 1, topic, 1)


def keep_segments(cluster: Cluster, broker: int, topic: str, count: int) -> None:
    """Removes later segments with their indexes and snapshots, as if they had never been
    written."""
    logs = sorted((cluster.data(broker) / f"{topic}-0").glob("*.log"))
    assert len(logs) > count
    for log in logs[count:]:
        for file in log.parent.glob(f"{log.stem}.*"):
            file.unlink()


def swap_for_an_empty_disk(cluster: Cluster, topic: str, copy: Path) -> None:
    shutil.rmtree(cluster.data(1))


def swap_for_an_older_copy(cluster: Cluster, topic: str, copy: Path) -> None:
    shutil.rmtree(cluster.data(1))
    shutil.copytree(copy, cluster.data(1))


LONG = [lose_newest_segments, swap_for_an_empty_disk, swap_for_an_older_copy] if is_long() else []


@pytest.mark.parametrize("lose", [lose_folder, *LONG])
def test_a_broker_that_lost_data_and_starts_first_does_not_lead(
    cluster: Cluster, tmp_path: Path, lose: Callable[[Cluster, str, Path], None]
) -> None:
    topic = lose.__name__
    create_on(cluster, topic, (1, 2, 3), {"segment.bytes": "400"})
    values = [f"acknowledged {number}" for number in range(12)]
    _send_all(cluster, topic, values[:3])
    if lose is swap_for_an_older_copy:
        cluster.stop(1)
        shutil.copytree(cluster.data(1), tmp_path / "copy")
        cluster.start(1)
        cluster.wait_in_sync(topic, 0, 3)
    _send_all(cluster, topic, values[3:])
    _wait_checkpointed(cluster, topic, len(values))
    for broker in (1, 2, 3):
        cluster.kill(broker)
    _wait_unregistered(cluster)
    lose(cluster, topic, tmp_path / "copy")

    cluster.start(1)
    assert cluster.partition(topic, 0).leader == NO_BROKER
    assert f"{topic}-0 has no leader, because in-sync replicas have lost records" in cluster.logs(1)

    cluster.start(2)
    cluster.start(3)
    cluster.wait_in_sync(topic, 0, 3)
    for broker in (1, 2, 3):
        wait_stored(cluster, broker, topic, values)


@pytest.mark.skipif(not is_long(), reason="a variant, for verify")
def test_if_all_in_sync_replicas_lost_records_the_longest_log_leads(cluster: Cluster) -> None:
    """As after a power cut of all brokers: their checkpointed high watermarks exceed their log
    ends."""
    create_on(cluster, "short", (1, 2, 3), {"segment.bytes": "400"})
    values = [f"acknowledged {number}" for number in range(16)]
    _send_all(cluster, "short", values)
    for broker in (1, 2, 3):
        _wait_checkpointed(cluster, "short", len(values), broker)
    for broker in (1, 2, 3):
        cluster.kill(broker)
    _wait_unregistered(cluster)
    for broker, count in ((1, 1), (2, 2), (3, 1)):
        keep_segments(cluster, broker, "short", count)
    left = stored(cluster, 2, "short")
    assert 0 < len(left) < len(values)

    for broker in (1, 2, 3):
        cluster.start(broker)
    cluster.wait_in_sync("short", 0, 3)
    for broker in (1, 2, 3):
        wait_stored(cluster, broker, "short", left)
    logs = "".join(cluster.logs(broker) for broker in (1, 2, 3))
    assert "short-0: broker 2 leads although it has lost records" in logs


@pytest.mark.skipif(not is_long(), reason="a variant, for verify")
def test_the_only_in_sync_replica_without_its_log_waits_for_an_operator(cluster: Cluster) -> None:
    create_on(cluster, "sole", (1, 2, 3))
    send(cluster, "sole", "on all")
    cluster.stop(2)
    cluster.stop(3)
    cluster.wait_in_sync("sole", 0, 1)
    cluster.stop(1)
    shutil.rmtree(cluster.data(1) / "sole-0")
    for broker in (1, 2, 3):
        cluster.start(broker)
    assert cluster.partition("sole", 0).leader == NO_BROKER
    tp = TopicPartition("sole", 0)
    cluster.ask(
        lambda client: client.reassignments.elect_leaders([tp], choice=ElectionType.UNCLEAN)
    )
    cluster.wait_in_sync("sole", 0, 3)
    assert read(cluster, "sole") == ["on all"]


def _send_all(cluster: Cluster, topic: str, values: list[str]) -> None:
    with ConnectedClient(cluster) as client:
        for value in values:
            client.send(topic, value)


def _wait_checkpointed(cluster: Cluster, topic: str, offset: int, broker: int = 1) -> None:
    """Waits until the broker has checkpointed this high watermark."""
    checkpoint = cluster.data(broker) / "replication-offset-checkpoint"
    line = f"{topic} 0 {offset}"
    cluster.wait(
        lambda: checkpoint.read_text().splitlines() if checkpoint.exists() else [],
        lambda lines: line in lines,
    )


def _wait_unregistered(cluster: Cluster) -> None:
    """Waits until the sessions of all brokers have expired."""
    client = KazooClient(cluster.zookeeper)
    client.start()
    try:
        cluster.wait(lambda: client.get_children("/brokers/ids"), lambda brokers: not brokers)
    finally:
        client.stop()
        client.close()
