"""Network partitions between brokers, one way or both, while all of them reach ZooKeeper.

No broker fails: the leader continues alone or not at all, and no acknowledged record is lost.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.cluster.faults import BROKERS, heal
from tests.cluster.load import PARTITIONS, Load
from tests.profile import scaled

from penstock.model.ids import TopicPartition
from penstock.testing import Cluster
from penstock.testing.network_spaces import NoNamespaces

pytestmark = pytest.mark.xdist_group("cluster")

ROUNDS = scaled(test=1, verify=3, release=6)
TOPIC = "numbers"
SETTINGS = {
    "replica.lag.time.max.ms": 3000,
    "replica.socket.timeout.ms": 3000,
    "zookeeper.session.timeout.ms": 60_000,  # so that no session expires here
}

Link = tuple[int, int]  # from broker, to broker


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(brokers=3, config=SETTINGS, in_namespaces=True)
    try:
        cluster.start_all()
    except NoNamespaces as missing:
        pytest.skip(f"no network namespaces: {missing}")
    try:
        cluster.create_topic(
            TOPIC, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": 2}
        )
        heal(cluster, TOPIC)
        yield cluster
    finally:
        cluster.stop_all()


@pytest.fixture
def zookeeper(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def sends_nothing(leader: int, others: list[int]) -> list[Link]:
    return [(leader, other) for other in others]


def hears_nothing(leader: int, others: list[int]) -> list[Link]:
    return [(other, leader) for other in others]


def cut_off(leader: int, others: list[int]) -> list[Link]:
    return sends_nothing(leader, others) + hears_nothing(leader, others)


CUTS = (cut_off, sends_nothing, hears_nothing)[: scaled(test=1, verify=3, release=3)]


def test_a_leader_cut_from_its_followers_loses_no_acknowledged_record(
    cluster: Cluster, zookeeper: KazooClient, record_note: Callable[[str, Iterable[str]], None]
) -> None:
    load = Load(cluster, TOPIC)
    try:
        load.wait_acknowledged()
        plan = [cut for cut in CUTS for _ in range(ROUNDS)]
        Random(11).shuffle(plan)
        for cut in plan:
            begun = time.monotonic()
            evidence = _cut_and_join(cluster, zookeeper, cut)
            heal(cluster, TOPIC)
            load.wait_acknowledged()
            silence_s = load.longest_silence_s(begun)
            note = (
                f"{cut.__name__}: {evidence}; longest without an acknowledgement {silence_s:.1f} s"
            )
            print(note)
            record_note("cluster: faults and the evidence of each", [note])
    finally:
        load.stop()
    load.check()
    assert len(load.acknowledged) > 200 * len(plan)


def _cut_and_join(
    cluster: Cluster, zookeeper: KazooClient, links_of: Callable[[int, list[int]], list[Link]]
) -> str:
    """Cuts off the controller's broker, because it can still store a shrunk ISR."""
    leader = cluster.controller
    partition = _lead_one(cluster, leader)
    epoch = _stored(zookeeper, partition)["leader_epoch"]
    links = links_of(leader, [broker for broker in BROKERS if broker != leader])
    for link in links:
        cluster.cut(*link)
    try:
        cluster.wait(
            lambda: _stored(zookeeper, partition)["isr"], lambda in_sync: in_sync == [leader]
        )
    finally:
        for link in links:
            cluster.join(*link)
    cluster.wait(
        lambda: len(_stored(zookeeper, partition)["isr"]), lambda count: count == len(BROKERS)
    )
    assert _stored(zookeeper, partition)["leader_epoch"] == epoch, (
        "a leader that lives was replaced"
    )
    return f"broker {leader} was alone in sync in partition {partition}, and is not any more"


def _lead_one(cluster: Cluster, broker: int) -> int:
    """Makes the broker lead a partition, by an election if necessary; returns its number."""
    (partition,) = (
        number
        for number in range(PARTITIONS)
        if cluster.partition(TOPIC, number).replicas[0] == broker
    )
    tp = TopicPartition(TOPIC, partition)
    cluster.ask(lambda client: client.reassignments.elect_leaders([tp]))
    cluster.wait_partition(TOPIC, partition, lambda state: state.leader == broker)
    return partition


def _stored(zookeeper: KazooClient, partition: int) -> dict[str, Any]:
    """The state znode: no partitioned broker has all of it."""
    value, _ = zookeeper.get(f"/brokers/topics/{TOPIC}/partitions/{partition}/state")
    return dict(json.loads(value))
