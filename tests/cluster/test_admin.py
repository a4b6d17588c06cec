"""`penstock.Admin` on a cluster: every replica, reassignments, elections, a broker that is gone."""

import time
from collections.abc import Callable

import pytest

import penstock
from penstock import NewTopic, TopicPartition
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

PATIENCE_S = 180.0
ORDERS = TopicPartition("orders", 0)
SESSION_MS = 600_000  # however slow the machine is, a frozen broker stays registered and in sync


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_replicas_are_described_moved_and_led_by_their_preferred_leader() -> None:
    patient = {
        "zookeeper.session.timeout.ms": SESSION_MS,
        "replica.lag.time.max.ms": SESSION_MS,
    }
    with (
        Cluster(brokers=3, config=patient) as cluster,
        penstock.Admin(cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics(NewTopic("orders", assignment={0: [1, 2]}))
        with penstock.Producer(cluster.bootstrap_servers) as producer:
            producer.send_and_wait("orders", b"one")

        def replicas() -> dict[int, penstock.ReplicaDescription]:
            (partition,) = admin.describe_topics("orders")["orders"].partitions
            return {int(replica.broker): replica for replica in partition.replicas}

        wait(lambda: [one.high_watermark for one in replicas().values()] == [1, 1])
        described = replicas()
        assert [(one.state, one.log_end_offset) for one in described.values()] == [
            ("leader", 1),
            ("in sync", 1),
        ]
        assert [one.behind for one in described.values()] == [0, 0]

        admin.alter_reassignments({ORDERS: [3, 1]})
        wait(lambda: not admin.list_reassignments())
        wait(lambda: list(replicas()) == [3, 1])  # the controller knows it first
        wait(lambda: replicas()[3].log_end_offset == 1)
        wait(lambda: len(cluster.in_sync("orders", 0)) == 2)
        assert admin.elect_leaders() in ({ORDERS: True}, {})  # the controller may have been first
        wait(lambda: replicas()[3].is_leader)
        assert admin.elect_leaders(ORDERS) == {ORDERS: False}
        with pytest.raises(penstock.RefusedByBroker, match="orders-0"):
            admin.alter_reassignments({ORDERS: [3, 4711]})

        cluster.pause(1)
        frozen = replicas()[1]
        cluster.resume(1)
        assert (frozen.has_answered, frozen.state) == (False, "in sync, no answer")
        assert set(admin.describe_log_dirs([1, 3], partitions="orders")) == {1, 3}
        assert set(admin.describe_cluster().brokers) == {1, 2, 3}
