"""A cluster of both storage engines: brokers replicate to each other whatever they store in."""

from collections.abc import Iterator

import pytest
from tests.cluster.records import create_on, read, send
from tests.profile import scaled

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

SHARED = (2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    engines = {1: "segmented", 2: "commitlog", 3: "commitlog"}
    configs = {broker: {"storage.engine": engine} for broker, engine in engines.items()}
    with Cluster(brokers=3, broker_configs=configs) as cluster:
        yield cluster


def test_every_engine_leads_and_follows_every_other(cluster: Cluster) -> None:
    """A leader is killed, in `make verify` each in turn; the next has every acknowledged record."""
    create_on(cluster, "mixed", (1, 2, 3))
    values: list[str] = []
    for _ in range(scaled(test=1, verify=3, release=6)):
        leader = cluster.leader("mixed", 0)
        values += [f"before-{leader}", f"again-{leader}"]
        for value in values[-2:]:
            send(cluster, "mixed", value)
        cluster.kill(leader)
        _wait_other_leader(cluster, "mixed", leader)
        values.append(f"without-{leader}")
        send(cluster, "mixed", values[-1])
        assert read(cluster, "mixed") == values
        cluster.start(leader)
        cluster.wait_in_sync("mixed", 0, 3)
    assert all((cluster.data(broker) / "commitlog").is_dir() for broker in SHARED)
    assert not (cluster.data(1) / "commitlog").exists()


def _wait_other_leader(cluster: Cluster, topic: str, former: int) -> None:
    cluster.wait_partition(topic, 0, lambda partition: partition.leader not in (-1, former))
