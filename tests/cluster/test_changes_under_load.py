"""Cluster changes under load: clients see at most a new leader, and no record is lost."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from tests.cluster.faults import BROKERS, heal
from tests.cluster.load import PARTITIONS, Load
from tests.cluster.records import read, send, wait_stored
from tests.cluster.retrying_producer import RetryingProducer
from tests.stored_batches import is_stored
from tests.zookeeper import kazoo_client

from penstock.client.admin_values import NewTopic
from penstock.client.metadata import PartitionMetadata
from penstock.client.reassignments import PartitionReassignment
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config={"auto.create.topics.enable": False}) as cluster:
        yield cluster


@contextmanager
def working(cluster: Cluster, topic: str) -> Iterator[Load]:
    """Runs load before, during and after; no acknowledged record may be lost."""
    load = Load(cluster, topic)
    try:
        load.wait_acknowledged()
        yield load
        load.wait_acknowledged()
    finally:
        load.stop()
    load.check()


def test_partitions_are_added_under_load(cluster: Cluster) -> None:
    cluster.create_topic("growing", partitions=PARTITIONS, replication_factor=3)
    with working(cluster, "growing"):
        cluster.ask(lambda client: client.admin.create_partitions({"growing": 2 * PARTITIONS}))
        for number in range(PARTITIONS, 2 * PARTITIONS):
            cluster.wait(
                partial(_find_in_sync, cluster, "growing", number), lambda in_sync: in_sync == 3
            )
            assert send(cluster, "growing", "first", partition=number) == 0


def _find_in_sync(cluster: Cluster, topic: str, partition: int) -> int:
    """The number of in-sync replicas; 0 while the broker does not know the new partition yet."""
    try:
        return len(cluster.in_sync(topic, partition))
    except KeyError:
        return 0


def test_partitions_are_reassigned_under_load(cluster: Cluster) -> None:
    _create(cluster, "moving", {0: (1, 2), 1: (2, 1), 2: (1, 2)})
    targets = {0: (3, 2), 1: (3, 1), 2: (2, 3)}
    with working(cluster, "moving"):
        wanted = {TopicPartition("moving", number): to for number, to in targets.items()}
        results = cluster.ask(lambda client: client.reassignments.alter(wanted))
        assert {result.code for result in results.values()} == {ErrorCode.NONE}
        cluster.wait(partial(_find_moving, cluster), lambda moving: not moving)
        for number, to in targets.items():  # the change is stored; brokers learn of it later
            partition = cluster.wait_partition("moving", number, partial(_is_on, to))
            assert partition.leader in to
    for broker, number in ((1, 0), (2, 1), (1, 2)):
        stored = partial(is_stored, cluster.data(broker), "moving", number)
        cluster.wait(stored, lambda is_there: not is_there)


def _is_on(brokers: tuple[int, ...], partition: PartitionMetadata) -> bool:
    return partition.replicas == brokers and set(partition.in_sync) == set(brokers)


def _create(cluster: Cluster, topic: str, assignment: dict[int, tuple[int, ...]]) -> None:
    on = {number: tuple(map(BrokerId, brokers)) for number, brokers in assignment.items()}
    new = NewTopic(name=topic, assignment=on)
    cluster.ask(lambda client: client.admin.create_topics([new]))


def _find_moving(cluster: Cluster) -> dict[TopicPartition, PartitionReassignment]:
    return cluster.ask(lambda client: client.reassignments.list_ongoing())


def test_a_topic_is_deleted_and_recreated_under_load(cluster: Cluster) -> None:
    cluster.create_topic("phoenix", replication_factor=3)
    first_id = _topic_id(cluster, "phoenix")
    with RetryingProducer(cluster, "phoenix") as producer:
        producer.wait_delivered()
        before = set(producer.delivered)
        cluster.ask(lambda client: client.admin.delete_topics(["phoenix"]))
        producer.wait_refused()
        cluster.wait(partial(_find_topic_id, cluster, "phoenix"), lambda stat: stat is None)
        cluster.create_topic("phoenix", replication_factor=3)
        before_restart = len(producer.delivered)
        producer.wait_delivered()
    assert _topic_id(cluster, "phoenix") != first_id
    values = [int(value) for value in read(cluster, "phoenix")]
    assert before.isdisjoint(values)
    assert set(producer.delivered[before_restart:]) <= set(values)
    for broker in BROKERS:
        wait_stored(cluster, broker, "phoenix", [str(number) for number in values])


def _find_topic_id(cluster: Cluster, topic: str) -> TopicId | None:
    return cluster.ask(lambda client: client.metadata([topic])).find_topic_id(topic)


def _topic_id(cluster: Cluster, topic: str) -> TopicId:
    topic_id = _find_topic_id(cluster, topic)
    assert topic_id is not None
    return topic_id


def test_controlled_shutdown_moves_leaders_and_elect_leaders_returns_them(
    cluster: Cluster,
) -> None:
    """No produce fails, and no client waits for a session to expire."""
    _create(cluster, "handed", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    heal(cluster, "handed")
    tp = TopicPartition("handed", 0)
    with working(cluster, "handed") as load:
        cluster.stop(1)
        assert _stored(cluster, "handed") == (2, [2, 3])  # stored before broker 1 exited
        cluster.wait_partition("handed", 0, lambda state: state.leader == 2)
        load.wait_acknowledged()
        cluster.start(1)
        heal(cluster, "handed")
        assert _stored(cluster, "handed")[0] == 2
        results = cluster.ask(lambda client: client.reassignments.elect_leaders([tp]))
        assert results[tp].code is ErrorCode.NONE
        cluster.wait_partition("handed", 0, lambda state: state.leader == 1)
        again = cluster.ask(lambda client: client.reassignments.elect_leaders([tp]))
        assert again[tp].code is ErrorCode.ELECTION_NOT_NEEDED


def _stored(cluster: Cluster, topic: str) -> tuple[int, list[int]]:
    """Leader and ISR of its first partition, as stored; brokers learn of them later."""
    with kazoo_client(cluster.zookeeper) as zookeeper:
        state = json.loads(zookeeper.get(f"/brokers/topics/{topic}/partitions/0/state")[0])
    return state["leader"], state["isr"]
