"""A plain ZooKeeper client creates znodes, as Kafka's old tools did, and the controller acts on
them."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from kazoo.client import KazooClient
from tests.cluster.records import create_on, send, wait_stored
from tests.stored_batches import is_stored

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def zookeeper(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def put(zookeeper: KazooClient, path: str, value: object) -> None:
    zookeeper.create(path, json.dumps(value).encode())


def find_leader(cluster: Cluster, topic: str, partition: int = 0) -> int | None:
    metadata = cluster.ask(lambda client: client.metadata([topic])).find_partition(topic, partition)
    return None if metadata is None else int(metadata.leader)


def test_a_topic_created_as_a_znode_is_led_and_written(
    cluster: Cluster, zookeeper: KazooClient
) -> None:
    put(zookeeper, "/brokers/topics/put", {"version": 1, "partitions": {"0": [2, 3]}})
    cluster.wait(partial(find_leader, cluster, "put"), lambda leader: leader == 2)
    cluster.wait_in_sync("put", 0, 2)
    send(cluster, "put", "by a zookeeper-made leader")
    for broker in (2, 3):
        wait_stored(cluster, broker, "put", ["by a zookeeper-made leader"])
    state = json.loads(zookeeper.get("/brokers/topics/put/partitions/0/state")[0])
    assert (state["leader"], state["isr"]) == (2, [2, 3])


def test_partitions_added_to_a_topic_znode_are_created(
    cluster: Cluster, zookeeper: KazooClient
) -> None:
    create_on(cluster, "grown", (1, 2))
    data, _ = zookeeper.get("/brokers/topics/grown")
    node = json.loads(data)
    node["partitions"]["1"] = [3, 1]
    zookeeper.set("/brokers/topics/grown", json.dumps(node).encode())
    cluster.wait(partial(find_leader, cluster, "grown", 1), lambda leader: leader == 3)
    assert send(cluster, "grown", "into the second", partition=1) == 0
    state = json.loads(zookeeper.get("/brokers/topics/grown/partitions/1/state")[0])
    assert (state["leader"], state["isr"]) == (3, [3, 1])


def test_a_topic_is_deleted_by_its_deletion_znode(cluster: Cluster, zookeeper: KazooClient) -> None:
    create_on(cluster, "unloved", (1, 2, 3))
    zookeeper.create("/admin/delete_topics/unloved", b"")
    cluster.wait(
        lambda: zookeeper.exists("/admin/delete_topics/unloved"), lambda stat: stat is None
    )
    assert zookeeper.exists("/brokers/topics/unloved") is None
    for broker in (1, 2, 3):
        stored = partial(is_stored, cluster.data(broker), "unloved", 0)
        cluster.wait(stored, lambda is_there: not is_there)
    cluster.wait(partial(find_leader, cluster, "unloved"), lambda leader: leader is None)


def test_a_deletion_znode_of_an_unknown_topic_is_reported_and_deleted(
    cluster: Cluster, zookeeper: KazooClient
) -> None:
    zookeeper.create("/admin/delete_topics/nowhere", b"")
    cluster.wait(
        lambda: zookeeper.exists("/admin/delete_topics/nowhere"), lambda stat: stat is None
    )
    cluster.wait(
        lambda: "".join(map(cluster.logs, (1, 2, 3))),
        lambda logs: "topic 'nowhere' is not deleted" in logs,
    )


def test_a_partition_is_reassigned_by_znode(cluster: Cluster, zookeeper: KazooClient) -> None:
    create_on(cluster, "wandering", (1, 2))
    send(cluster, "wandering", "comes along")
    move = {"topic": "wandering", "partition": 0, "replicas": [3, 1]}
    put(zookeeper, "/admin/reassign_partitions", {"version": 1, "partitions": [move]})
    cluster.wait(lambda: zookeeper.exists("/admin/reassign_partitions"), lambda stat: stat is None)
    cluster.wait_partition("wandering", 0, lambda state: state.replicas == (3, 1))
    wait_stored(cluster, 3, "wandering", ["comes along"])
    assert json.loads(zookeeper.get("/brokers/topics/wandering")[0])["partitions"] == {"0": [3, 1]}


def test_a_preferred_leader_is_elected_by_znode(cluster: Cluster, zookeeper: KazooClient) -> None:
    create_on(cluster, "led", (3, 2))
    put(
        zookeeper,
        "/admin/reassign_partitions",
        {"version": 1, "partitions": [{"topic": "led", "partition": 0, "replicas": [2, 3]}]},
    )
    cluster.wait_partition("led", 0, lambda state: state.replicas == (2, 3))
    assert cluster.leader("led", 0) == 3
    cluster.wait(lambda: zookeeper.exists("/admin/reassign_partitions"), lambda stat: stat is None)
    wanted = {"version": 1, "partitions": [{"topic": "led", "partition": 0}]}
    put(zookeeper, "/admin/preferred_replica_election", wanted)
    cluster.wait_partition("led", 0, lambda state: state.leader == 2)
    cluster.wait(
        lambda: zookeeper.exists("/admin/preferred_replica_election"), lambda stat: stat is None
    )
