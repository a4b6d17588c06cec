"""Three brokers with an authorizer: they replicate, and each obeys what any of them is told."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

import penstock
from penstock import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")
WAIT_S = 120
CONFIG = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",  # the brokers among themselves
    "min.insync.replicas": 3,
}
RULE = AclBinding(
    ResourcePattern(ResourceType.TOPIC, "orders"),
    AccessControlEntry("User:ada", "*", AclOperation.READ, AclPermission.ALLOW),
)


@pytest.fixture(scope="module", name="cluster")
def _cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        yield cluster


def rules_of(address: str) -> list[AclBinding]:
    with penstock.Admin(address) as admin:
        return admin.describe_acls()


def try_delete_all(address: str) -> bool:
    """False: ZooKeeper was too slow to say whether the rules are deleted."""
    with penstock.Admin(address) as admin:
        try:
            admin.delete_acls(AclFilter())
        except penstock.RefusedByBroker as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            return False
    return True


def test_brokers_that_are_super_users_replicate(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3, replication_factor=3)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for partition in range(3):
        producer.produce(
            "orders",
            b"v",
            partition=partition,
            on_delivery=lambda error, message: errors.append(error),
        )
    assert producer.flush(WAIT_S) == 0
    assert errors == [None, None, None]
    for partition in range(3):
        cluster.wait_in_sync("orders", partition, 3)


def test_every_broker_obeys_a_change_and_one_that_restarts_has_it(cluster: Cluster) -> None:
    addresses = cluster.bootstrap_servers.split(",")
    with penstock.Admin(addresses[0]) as admin:
        admin.create_acls(RULE)
    for address in addresses:
        cluster.wait(partial(rules_of, address), [RULE].__eq__)
    cluster.kill(2)
    client = KazooClient(cluster.zookeeper)
    client.start()
    try:
        data, _ = client.get("/kafka-acl/Topic/orders")
        assert b'"principal":"User:ada"' in data
    finally:
        client.stop()
        client.close()
    cluster.start(2)
    assert rules_of(addresses[1]) == [RULE]
    cluster.wait(partial(try_delete_all, addresses[1]), lambda is_done: is_done)
    for address in addresses:
        cluster.wait(partial(rules_of, address), [].__eq__)
