"""Quotas and the audit trail on three brokers: replication is exempt, and every broker obeys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient
from typer.testing import CliRunner

import penstock
from penstock import QuotaEntity, QuotaKey
from penstock.cli.main import app
from penstock.model.quotas import DEFAULT_ENTITY
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")
HANG_S = 180
EVERYBODY = QuotaEntity(DEFAULT_ENTITY)
ADA = QuotaEntity("ada")
Quotas = Mapping[QuotaEntity, Mapping[QuotaKey, float]]
CONFIG = {
    "min.insync.replicas": 3,
    "penstock.audit.enable": True,
    "penstock.audit.topic.num.partitions": 1,  # so that two brokers lead none
}


@pytest.fixture(scope="module", name="cluster")
def _cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        yield cluster


def addresses(cluster: Cluster) -> list[str]:
    return cluster.bootstrap_servers.split(",")


def quotas_of(address: str) -> Quotas:
    with penstock.Admin(address) as admin:
        return admin.describe_client_quotas()


def alter(address: str, entity: QuotaEntity, **values: float | None) -> None:
    with penstock.Admin(address) as admin:
        admin.alter_client_quotas({entity: values})


def wait_everywhere(cluster: Cluster, quotas: Quotas) -> None:
    for address in addresses(cluster):
        cluster.wait(partial(quotas_of, address), lambda stored: stored == quotas)


def run(cluster: Cluster, *arguments: str) -> str:
    ran = CliRunner().invoke(app, [*arguments, "--bootstrap", cluster.bootstrap_servers])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_replication_is_exempt_from_a_quota_of_everybody(cluster: Cluster) -> None:
    """The brokers are ANONYMOUS as well, and their fetches ten thousand times above it."""
    cluster.create_topic("orders", partitions=3, replication_factor=3)
    alter(addresses(cluster)[0], EVERYBODY, consumer_byte_rate=100.0)
    wait_everywhere(cluster, quotas_of(addresses(cluster)[0]))
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(30):
        producer.produce(
            "orders",
            bytes(100_000),
            partition=number % 3,
            on_delivery=lambda error, message: errors.append(error),
        )
    assert producer.flush(HANG_S) == 0
    assert errors == [None] * 30
    alter(addresses(cluster)[0], EVERYBODY, consumer_byte_rate=None)
    metrics = json.loads(run(cluster, "cluster", "metrics", "penstock_quota", "--json"))
    for series in metrics["brokers"].values():
        assert series['penstock_quota_throttled_total{quota="consumer_byte_rate"}'] == 0


def test_every_broker_takes_a_change_of_any_broker(cluster: Cluster) -> None:
    first, second, third = addresses(cluster)
    alter(first, ADA, producer_byte_rate=1000.0)
    wait_everywhere(cluster, {ADA: {QuotaKey.PRODUCER_BYTE_RATE: 1000.0}})
    alter(second, ADA, producer_byte_rate=None)
    alter(third, EVERYBODY, consumer_byte_rate=5000.0)
    wait_everywhere(cluster, {EVERYBODY: {QuotaKey.CONSUMER_BYTE_RATE: 5000.0}})
    alter(second, EVERYBODY, consumer_byte_rate=None)
    wait_everywhere(cluster, {})


def test_edits_by_hand_are_in_effect_on_every_broker(cluster: Cluster) -> None:
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start()
    try:
        rate = json.dumps({"version": 1, "config": {"producer_byte_rate": "1234"}}).encode()
        zookeeper.create("/config/users/by%20hand", rate)
        by_hand = {QuotaEntity("by hand"): {QuotaKey.PRODUCER_BYTE_RATE: 1234.0}}
        wait_everywhere(cluster, by_hand)
        zookeeper.delete("/config/users/by%20hand")
        wait_everywhere(cluster, {})
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_brokers_that_lead_no_partition_write_to_the_audit_topic(cluster: Cluster) -> None:
    for number, address in enumerate(addresses(cluster), 1):
        alter(address, QuotaEntity(f"user-{number}"), producer_byte_rate=1000.0)
        alter(address, QuotaEntity(f"user-{number}"), producer_byte_rate=None)

    def find_writers() -> set[tuple[str, str]]:
        arguments = ("audit", "tail", "--from-beginning", "--timeout-s", "3", "--json")
        events = map(json.loads, run(cluster, *arguments).splitlines())
        return {
            (event["device"]["uid"], resource["name"])
            for event in events
            for resource in event["resources"]
        }

    wanted = {(str(number), f"user-{number}") for number in (1, 2, 3)}
    cluster.wait(find_writers, lambda writers: wanted <= writers)
