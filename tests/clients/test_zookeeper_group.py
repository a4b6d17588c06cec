"""One group in ZooKeeper of our members and of wvanbergen's consumergroup, and its lag as
kafka_exporter reads it. Both programs are unmodified.

One broker leads every partition, because that client sorts partitions by their leader first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.clients.test_kafka_exporter import run_exporter, sort_labels
from tests.cluster.zookeeper_group import ZooKeeperGroup, count_doubles, sending
from tests.interop.kafka_jars import Say
from tests.outside.attempt import Unavailable
from tests.outside.packages import resolve_kafka_exporter, resolve_older_member
from tests.profile import is_long
from tests.zookeeper import kazoo_client

import penstock
from penstock.testing import Cluster

pytestmark = [
    pytest.mark.xdist_group("clients-outside"),
    pytest.mark.skipif(not is_long(), reason="programs that Go builds"),
    pytest.mark.timeout(2400),  # the first test also downloads and builds
]

TOPIC, GROUP, PARTITIONS = "orders", "old", 6
PARENT = f"/consumers/{GROUP}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1)
        yield cluster


@pytest.fixture
def znodes(cluster: Cluster) -> Iterator[KazooClient]:
    with kazoo_client(cluster.zookeeper) as client:
        yield client


def owners_of(znodes: KazooClient) -> list[str]:
    """The members that own the partitions; our claims have the thread's number, theirs do not."""
    owners = []
    for number in range(PARTITIONS):
        try:
            owner = znodes.get(f"{PARENT}/owners/{TOPIC}/{number}")[0].decode()
        except NoNodeError:
            owner = ""
        owners.append(owner.removesuffix("-0") if owner.startswith(GROUP) else owner)
    return owners


def test_our_members_and_older_ones_share_one_group(
    cluster: Cluster, znodes: KazooClient, tmp_path: Path, say: Say
) -> None:
    try:
        older = resolve_older_member(say)
    except Unavailable as error:
        pytest.skip(f"skipped: {error}")
    group = ZooKeeperGroup(cluster, tmp_path, group=GROUP, topic=TOPIC)

    def wait_shared() -> None:
        """Range, by the names of the members: both kinds agree on it."""
        count = len(group.running)

        def state() -> tuple[list[str], list[str]]:
            exists = znodes.exists(f"{PARENT}/ids")
            return sorted(znodes.get_children(f"{PARENT}/ids")) if exists else [], owners_of(znodes)

        def is_range(now: tuple[list[str], list[str]]) -> bool:
            members, owners = now
            if len(members) != count:
                return False
            whole, more = divmod(PARTITIONS, count)
            sizes = [whole + (index < more) for index in range(count)]
            return owners == [
                name for name, size in zip(members, sizes, strict=True) for _ in range(size)
            ]

        cluster.wait(state, is_range)

    with sending(cluster, TOPIC, partitions=PARTITIONS, rate=200) as sent:
        ours, theirs = [group.join(), group.join()], [group.join(older)]
        wait_shared()
        group.wait_read(sent[0])
        for _ in range(3):
            theirs.append(group.join(older))
            wait_shared()
            ours.pop(0).kill()
            wait_shared()
            group.wait_read(sent[0])
            ours.append(group.join())
            wait_shared()
            theirs.pop(0).kill()
            wait_shared()
            group.wait_read(sent[0])
            ours.pop(0).stop()
            ours.append(group.join())
            wait_shared()
            group.wait_read(sent[0])
    group.wait_read(sent[0])
    group.stop()
    doubles = count_doubles(group)
    say(f"{sent[0]} messages, {doubles.after_breaks} doubled after a kill")
    assert (doubles.unexplained, doubles.in_hand) == ([], 0)
    assert {line.member for line in group.lines()} == {member.number for member in group.members}
    offsets = [
        int(znodes.get(f"{PARENT}/offsets/{TOPIC}/{number}")[0]) for number in range(PARTITIONS)
    ]
    assert sum(offsets) == sent[0]


def test_kafka_exporter_reads_the_groups_lag_from_zookeeper(
    cluster: Cluster, znodes: KazooClient, tmp_path: Path, say: Say
) -> None:
    try:
        exporter = resolve_kafka_exporter(say)
    except Unavailable as error:
        pytest.skip(f"skipped: {error}")
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        for number in range(60):
            producer.send(TOPIC, str(number), partition=number % PARTITIONS)
    with penstock.ZooKeeperConsumer(
        TOPIC, zookeeper=cluster.zookeeper, group=GROUP, from_beginning=True
    ) as member:
        count = 0
        while count < 60:
            count += len(member.poll_batch(60 - count, 120))
        assert member.poll_batch(1, 0) == []  # what was returned is processed
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(TOPIC, str(number), partition=3)
    options = ("--use.consumelag.zookeeper", f"--zookeeper.server={cluster.zookeeper}")
    with run_exporter(exporter, cluster, tmp_path, *options) as read:
        name = "kafka_consumergroupzookeeper_lag_zookeeper"

        def lags() -> list[float | None]:
            series = sort_labels(read())
            labels = [
                f'{{consumergroup="{GROUP}",partition="{number}",topic="{TOPIC}"}}'
                for number in range(PARTITIONS)
            ]
            return [series.get(name + label) for label in labels]

        cluster.wait(lags, [0.0, 0.0, 0.0, 5.0, 0.0, 0.0].__eq__)
