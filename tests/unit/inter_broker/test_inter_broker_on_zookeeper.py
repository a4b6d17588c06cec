"""The same brokers on a real ZooKeeper: sessions expire, and a plain client creates znodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.inter_broker.cluster_harness import (
    BrokerHarness,
    ClusterHarness,
    cluster_harness,
    until,
)
from tests.unit.metadata_store.backends import expire, opened

from penstock.metadata_store.interface import Session
from penstock.metadata_store.zookeeper.session import ZooKeeperSession
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult, IsrMember
from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

pytestmark = pytest.mark.xdist_group("zookeeper")

T0 = TopicPartition("t", 0)
Scenario = Callable[[ClusterHarness, Session], Awaitable[None]]


def run_scenario(scenario: Scenario, connect: str, *brokers: int) -> None:
    """Run a scenario; the plain client has its own session."""

    async def run() -> None:
        async with asyncio.timeout(120), opened(connect) as store:
            client = await store.open_session()
            async with cluster_harness(store, *brokers) as cluster:
                await scenario(cluster, client)

    asyncio.run(run())


def json_of(**fields: object) -> bytes:
    return json.dumps({"version": 1, **fields}).encode()


def seen(broker: BrokerHarness) -> PartitionState | None:
    topic = broker.metadata.find_topic("t")
    return None if topic is None else topic.partitions[0]


async def lose_session(broker: BrokerHarness, connect: str) -> None:
    """Expire a broker's session, and wait until it has re-registered."""
    session, epoch = broker.session, broker.handler.broker_epoch
    assert isinstance(session, ZooKeeperSession)
    await expire(session, connect)
    await until(lambda: broker.handler.broker_epoch > epoch)


async def until_gone(client: Session, path: str) -> None:
    gone = asyncio.Event()
    while await client.exists(path, lambda _: gone.set()) is not None:
        await gone.wait()
        gone.clear()


async def propose(broker: BrokerHarness, *in_sync: int) -> AlterPartitionResult:
    topic = broker.metadata.find_topic("t")
    assert topic is not None
    state = topic.partitions[0]
    epochs = {broker_id: node.epoch for broker_id, node in broker.metadata.brokers.items()}
    members = tuple(IsrMember(BrokerId(b), epochs[BrokerId(b)]) for b in in_sync)
    answered: asyncio.Future[AlterPartitionResult] = asyncio.get_running_loop().create_future()
    broker.alter_partition.propose(
        AlterPartitionProposal(
            topic.topic_id, T0.partition, state.leader_epoch, state.partition_epoch, members
        ),
        answered.set_result,
    )
    return await asyncio.wait_for(answered, 180)


def test_znodes_of_a_plain_client_create_reassign_and_delete_a_topic(
    zookeeper_connect: str,
) -> None:
    async def scenario(cluster: ClusterHarness, client: Session) -> None:
        await client.create("/brokers/topics/t", json_of(partitions={"0": [2, 1]}))
        two = cluster.brokers[2]
        await until(lambda: two.replicas.find(T0) is not None and two.replicas.get(T0).is_leader)
        reassignments = [{"topic": "t", "partition": 0, "replicas": [3, 2]}]
        await client.create("/admin/reassign_partitions", json_of(partitions=reassignments))
        await until(lambda: cluster.brokers[3].replicas.find(T0) is not None)
        await until(lambda: (state := seen(two)) is not None and state.adding == (3,))
        assert (await propose(two, 2, 1, 3)).code is ErrorCode.NONE
        await until(lambda: cluster.brokers[1].replicas.find(T0) is None)
        await until_gone(client, "/admin/reassign_partitions")
        await client.create("/admin/delete_topics/t")
        await until(lambda: all(seen(broker) is None for broker in cluster.brokers.values()))
        assert all(broker.replicas.find(T0) is None for broker in cluster.brokers.values())
        await until_gone(client, "/admin/delete_topics/t")
        assert await client.children("/brokers/topics") == ()

    run_scenario(scenario, zookeeper_connect, 1, 2, 3)


def test_brokers_and_controllers_survive_expired_sessions(zookeeper_connect: str) -> None:
    async def scenario(cluster: ClusterHarness, client: Session) -> None:
        await client.create("/brokers/topics/t", json_of(partitions={"0": [1, 2, 3]}))
        await until(lambda: all(seen(broker) is not None for broker in cluster.brokers.values()))
        for _ in range(2):
            for broker in cluster.brokers.values():
                await lose_session(broker, zookeeper_connect)
                await cluster.wait_joined()
        await until(lambda: len({seen(broker) for broker in cluster.brokers.values()}) == 1)
        state = seen(cluster.controller)
        assert state is not None
        leaders = [
            broker_id
            for broker_id, broker in cluster.brokers.items()
            if broker.replicas.get(T0).is_leader
        ]
        assert leaders == [state.leader]
        assert state.leader_epoch >= 2  # its leader also lost its session

    run_scenario(scenario, zookeeper_connect, 1, 2, 3)
