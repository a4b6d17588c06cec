"""ZooKeeper fails, one server or all: leaders continue to serve, and metadata changes wait.

Also automatic preferred election after a restart, which this cluster checks often.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.cluster.faults import BROKERS, heal
from tests.cluster.load import PARTITIONS, Load
from tests.profile import is_long

from penstock.client.admin_values import NewTopic
from penstock.model.cluster import NO_BROKER
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

SERVERS = (1, 2, 3) if is_long() else (1,)
SESSION_S = 12.0  # so that no session expires on a slow machine
PATIENCE_MS = 120_000
TOPIC = "numbers"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
        "leader.imbalance.check.interval.seconds": 1,
        "leader.imbalance.per.broker.percentage": 0,  # one partition of many counts
    }
    with Cluster(brokers=3, zookeepers=len(SERVERS), config=settings) as cluster:
        cluster.create_topic(
            TOPIC, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": 2}
        )
        heal(cluster, TOPIC)
        yield cluster


@pytest.fixture(scope="module")
def load(cluster: Cluster) -> Iterator[Load]:
    """Runs load during the whole test; at the end nothing may be lost."""
    load = Load(cluster, TOPIC)
    load.wait_acknowledged()
    yield load
    load.stop()
    load.check()


def epochs(cluster: Cluster) -> list[int]:
    return [int(cluster.partition(TOPIC, number).leader_epoch) for number in range(PARTITIONS)]


def count_sessions_lost(cluster: Cluster) -> int:
    return sum(cluster.logs(broker).count("ZooKeeper session expired") for broker in BROKERS)


@pytest.mark.skipif(
    not is_long(), reason="three JVMs; test_zookeeper_ensemble kills a server of three"
)
def test_one_zookeeper_server_of_three_may_fail(cluster: Cluster, load: Load) -> None:
    """Stops each server in turn, the ensemble's leader among them."""
    before, begun = epochs(cluster), time.monotonic()
    for server in SERVERS:
        cluster.kill_zookeeper(server)
        load.wait_acknowledged()
        cluster.create_topic(f"without-{server}", replication_factor=3)
        cluster.start_zookeeper(server)
        cluster.wait_zookeeper()
    assert load.longest_silence_s(begun) < SESSION_S
    assert count_sessions_lost(cluster) == 0
    assert epochs(cluster) == before


def test_without_zookeeper_leaders_serve_and_changes_wait(cluster: Cluster, load: Load) -> None:
    before, begun = epochs(cluster), time.monotonic()
    with ThreadPoolExecutor(max_workers=1) as apart:
        for server in SERVERS:
            cluster.kill_zookeeper(server)
        change = apart.submit(_create_patiently, cluster, "late")
        while time.monotonic() < begun + 1.5 * SESSION_S:
            load.wait_acknowledged()
        assert load.longest_silence_s(begun) < SESSION_S
        assert epochs(cluster) == before
        assert not change.done()
        for server in SERVERS:
            cluster.start_zookeeper(server)
        cluster.wait_zookeeper()
        change.result(PATIENCE_MS / 1000)
    cluster.wait_in_sync("late", 0, 3)
    load.wait_acknowledged()
    heal(cluster, TOPIC)


def _create_patiently(cluster: Cluster, topic: str) -> None:
    new = NewTopic(name=topic, partitions=1, replication_factor=3)
    cluster.ask(lambda client: client.admin.create_topics([new], timeout_ms=PATIENCE_MS))


def test_preferred_leaders_are_elected_automatically(cluster: Cluster, load: Load) -> None:
    home = cluster.partition(TOPIC, 0).replicas[0]
    cluster.wait_partition(TOPIC, 0, lambda state: state.leader == home)
    cluster.stop(home)
    cluster.wait_partition(TOPIC, 0, lambda state: state.leader not in (home, NO_BROKER))
    load.wait_acknowledged()
    cluster.start(home)
    for number in range(PARTITIONS):
        cluster.wait_partition(TOPIC, number, lambda state: state.leader == state.replicas[0])
