"""Requests made by creating znodes with a plain client."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.unit.controller.cluster import Cluster, code_of, run_scenario, same_state, settled

from penstock.config.raw_config import RawConfig
from penstock.controller.controller import Controller
from penstock.controller.interface import CreatableTopic
from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.znodes import PERSISTENT_ZNODES
from penstock.metadata_store.interface import Create, Session
from penstock.model.alter_partition import AlterPartitionProposal, IsrMember
from penstock.model.cluster import NO_BROKER, BrokerEpoch, BrokerId, PartitionState, TopicState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

WAIT_MS = 30_000
MOVES = "/admin/reassign_partitions"
ELECTIONS = "/admin/preferred_replica_election"


def node_of(**replicas: list[int]) -> bytes:
    partitions = {name[1:]: brokers for name, brokers in replicas.items()}
    return json.dumps({"version": 1, "partitions": partitions}).encode()


def entries(*partitions: dict[str, object]) -> bytes:
    return json.dumps({"version": 1, "partitions": partitions}).encode()


async def someone(cluster: Cluster) -> Session:
    return await cluster.store.open_session()


async def make(controller: Controller, name: str, *replicas: tuple[int, ...]) -> None:
    assignment = {n: tuple(map(BrokerId, brokers)) for n, brokers in enumerate(replicas)}
    [made] = await controller.create_topics(
        [CreatableTopic(name=name, assignment=assignment)], validate_only=False, timeout_ms=WAIT_MS
    )
    assert code_of(made) is ErrorCode.NONE


def part(controller: Controller, name: str = "t", number: int = 0) -> PartitionState:
    state = controller.find_state()
    assert state is not None
    return state.topics[name].partitions[number]


async def in_sync(controller: Controller, *brokers: int) -> None:
    """Change the ISR as the leader does."""
    state = controller.find_state()
    assert state is not None
    current = part(controller)
    change = AlterPartitionProposal(
        topic_id=state.topics["t"].topic_id,
        partition=0,
        leader_epoch=current.leader_epoch,
        partition_epoch=current.partition_epoch,
        in_sync=tuple(IsrMember(BrokerId(broker), BrokerEpoch(-1)) for broker in brokers),
    )
    [result] = await controller.alter_partition(
        [change],
        broker=current.leader,
        broker_epoch=state.brokers[current.leader].epoch,
        timeout_ms=WAIT_MS,
    )
    assert result.code is ErrorCode.NONE


class TestEditedTopicZnode:
    def test_adds_partitions(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t", (0, 1))
                topic_id = _topic(controller).topic_id
                session = await someone(cluster)
                await session.set("/brokers/topics/t", node_of(p0=[0, 1], p1=[1, 0], p2=[1]))
                await settled()
                assert [partition.replicas for partition in _topic(controller).partitions] == [
                    (0, 1),
                    (1, 0),
                    (1,),
                ]
                assert _topic(controller).topic_id == topic_id
                fake = cluster.channel.broker(1)
                assert [partition.leader for partition in fake.topics["t"].partitions] == [0, 1, 1]
                assert TopicPartition("t", 2) in fake.replicas
                reread = await cluster.reread()
                assert reread.writes == ()
                state = controller.find_state()
                assert state is not None
                assert same_state(reread.state, state)

        run_scenario(scenario, 0, 1)

    def test_is_watched_again_after_each_edit(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                session = await someone(cluster)
                await session.create("/brokers/topics/t", node_of(p0=[0]))
                await settled()
                for count in (2, 3):
                    more = {f"p{number}": [0] for number in range(count)}
                    await session.set("/brokers/topics/t", node_of(**more))
                    await settled()
                    assert len(_topic(controller).partitions) == count

        run_scenario(scenario, 0)

    def test_cannot_reassign_or_shrink_and_is_reported(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t", (0,), (1,))
                session = await someone(cluster)
                for wrong in (node_of(p0=[1], p1=[1]), node_of(p0=[0]), b"nonsense"):
                    await session.set("/brokers/topics/t", wrong)
                    await settled()
                    reports = [report for report in cluster.reports if "stays as it is" in report]
                    assert reports
                    cluster.reports.clear()
                    assert [partition.replicas for partition in _topic(controller).partitions] == [
                        (0,),
                        (1,),
                    ]

        run_scenario(scenario, 0, 1)


def _topic(controller: Controller, name: str = "t") -> TopicState:
    state = controller.find_state()
    assert state is not None
    return state.topics[name]


class TestCreatedTopicZnode:
    def test_creates_a_topic_with_leaders(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                session = await someone(cluster)
                await session.create("/brokers/topics/t", node_of(p0=[1, 0], p1=[0]))
                await settled()
                fake = cluster.channel.broker(1)
                assert [partition.leader for partition in fake.topics["t"].partitions] == [1, 0]
                assert fake.replicas[TopicPartition("t", 0)].in_sync == (1, 0)
                reread = await cluster.reread()
                assert reread.writes == ()
                state = controller.find_state()
                assert state is not None
                assert same_state(reread.state, state)

        run_scenario(scenario, 0, 1)

    def test_that_cannot_be_read_is_left_alone_and_its_name_is_reserved(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                session = await someone(cluster)
                for name, data in (
                    ("broken", b"nonsense"),
                    ("bad name", node_of(p0=[0])),
                    ("twice", node_of(p0=[0, 0])),
                ):
                    await session.create(f"/brokers/topics/{name}", data)
                inside = "/brokers/topics/inside"
                await session.multi(
                    [
                        Create(path=inside, data=node_of(p0=[0])),
                        Create(path=f"{inside}/partitions"),
                        Create(path=f"{inside}/partitions/0"),
                        Create(path=f"{inside}/partitions/0/state", data=b"nonsense"),
                    ]
                )
                await session.create("/brokers/topics/good", node_of(p0=[0]))
                await settled()
                assert list(cluster.channel.broker().topics) == ["good"]
                assert (
                    len([report for report in cluster.reports if "ignoring topic" in report]) == 4
                )
                for path in (f"{inside}/partitions/0/state", f"{inside}/partitions/0"):
                    await session.delete(path)
                await session.delete(f"{inside}/partitions")
                await session.delete(inside)
                [answer] = await controller.create_topics(
                    [CreatableTopic(name="broken")], validate_only=False, timeout_ms=WAIT_MS
                )
                assert code_of(answer) is ErrorCode.TOPIC_ALREADY_EXISTS
            async with cluster.controlled():  # the next controller starts too
                assert list(cluster.channel.broker().topics) == ["good"]

        run_scenario(scenario)

    def test_together_with_a_request_creates_one_topic(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                session = await someone(cluster)
                made, _ = await asyncio.gather(
                    controller.create_topics(
                        [CreatableTopic(name="t")], validate_only=False, timeout_ms=WAIT_MS
                    ),
                    session.create("/brokers/topics/t", node_of(p0=[0], p1=[0])),
                    return_exceptions=True,
                )
                await settled()
                await controller.wait_ready()
                assert isinstance(made, list)
                assert "t" in cluster.channel.broker().topics
                assert (await cluster.reread()).writes == ()

        run_scenario(scenario)

    def test_without_an_active_controller_is_adopted_at_failover(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            session = await someone(cluster)
            await ensure_znodes(session, PERSISTENT_ZNODES)
            await session.create("/brokers/topics/t", node_of(p0=[0]))
            async with cluster.controlled():
                assert list(cluster.channel.broker().topics) == ["t"]

        run_scenario(scenario)


class TestDeletionZnode:
    def test_deletes_the_topic(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t", (0, 1), (1, 0))
                session = await someone(cluster)
                await session.create("/admin/delete_topics/t")
                await settled()
                assert await session.children("/brokers/topics") == ()
                assert await session.children("/admin/delete_topics") == ()
                assert cluster.channel.broker(1).topics == {}
                assert cluster.channel.broker(1).replicas == {}

        run_scenario(scenario, 0, 1)

    def test_of_an_unknown_topic_is_deleted(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled():
                session = await someone(cluster)
                await session.create("/admin/delete_topics/nowhere")
                await settled()
                assert await session.children("/admin/delete_topics") == ()
                assert any("nowhere" in report for report in cluster.reports)

        run_scenario(scenario)

    def test_is_deleted_if_delete_topic_enable_is_false(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            static = RawConfig.from_mapping({"delete.topic.enable": "false"}, where="file")
            async with cluster.controlled(static=static) as controller:
                await make(controller, "t", (0,))
                session = await someone(cluster)
                await session.create("/admin/delete_topics/t")
                await settled()
                assert await session.children("/admin/delete_topics") == ()
                assert list(cluster.channel.broker().topics) == ["t"]

        run_scenario(scenario)


class TestReassignmentZnode:
    def test_is_deleted_with_the_last_reassignment(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t", (0, 1))
                session = await someone(cluster)
                await session.create(
                    MOVES, entries({"topic": "t", "partition": 0, "replicas": [2, 1]})
                )
                await settled()
                assert part(controller).adding == (2,)
                assert TopicPartition("t", 0) in cluster.channel.broker(2).replicas
                assert await session.exists(MOVES) is not None
                await in_sync(controller, 0, 1, 2)
                await settled()
                assert await session.exists(MOVES) is None
                after = part(controller)
                assert (after.replicas, after.leader, after.adding) == ((2, 1), 2, ())
                assert TopicPartition("t", 0) not in cluster.channel.broker(0).replicas
                assert cluster.channel.broker(1).topics["t"].partitions[0].leader == 2

        run_scenario(scenario, 0, 1, 2)

    def test_continues_under_the_next_controller(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            session = await someone(cluster)
            async with cluster.controlled(0) as controller:
                await make(controller, "t", (0, 1))
                await session.create(
                    MOVES, entries({"topic": "t", "partition": 0, "replicas": [2, 1]})
                )
                await settled()
            async with cluster.controlled(1) as controller:
                assert part(controller).adding == (2,)
                await in_sync(controller, 0, 1, 2)
                await settled()
                assert part(controller).replicas == (2, 1)
                assert await session.exists(MOVES) is None

        run_scenario(scenario, 0, 1, 2)

    def test_that_is_invalid_is_reported_and_deleted(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled() as controller:
                await make(controller, "t", (0,))
                session = await someone(cluster)
                for data in (
                    b"nonsense",
                    b"{}",
                    entries({"topic": "t", "partition": "0", "replicas": [0]}),
                    entries({"topic": "t", "partition": 0, "replicas": ["0"]}),
                    entries({"topic": "t", "partition": 0, "replicas": [7]}),
                    entries({"topic": "u", "partition": 0, "replicas": [0]}),
                ):
                    reports = len(cluster.reports)
                    await session.create(MOVES, data)
                    await settled()
                    assert await session.exists(MOVES) is None, data
                    assert len(cluster.reports) == reports + 1
                assert part(controller).replicas == (0,)

        run_scenario(scenario)


class TestElectionZnode:
    def test_elects_preferred_leaders(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            async with cluster.controlled(0) as controller:
                await make(controller, "t", (1, 0))
                await cluster.leave(1)
                await settled()
                assert part(controller).leader == 0
                await cluster.join(1)
                await settled()
                await in_sync(controller, 0, 1)
                session = await someone(cluster)
                await session.create(ELECTIONS, entries({"topic": "t", "partition": 0}))
                await settled()
                assert part(controller).leader == 1
                assert await session.exists(ELECTIONS) is None

        run_scenario(scenario, 0, 1)


def test_preferred_leaders_are_elected_automatically() -> None:
    async def scenario(cluster: Cluster) -> None:
        ticks: list[int] = []
        tick = asyncio.Event()

        async def wait(duration_ms: int) -> None:
            ticks.append(duration_ms)
            await tick.wait()
            tick.clear()

        async with cluster.controlled(0, wait_rebalance_ms=wait) as controller:
            await make(controller, "t", (1, 0))
            await cluster.leave(1)
            await cluster_settles(cluster)
            await cluster.join(1)
            await cluster_settles(cluster)
            await in_sync(controller, 0, 1)
            assert part(controller).leader == 0
            tick.set()
            await cluster_settles(cluster)
            assert part(controller).leader == 1
            assert ticks == [300_000, 300_000]

    run_scenario(scenario, 0, 1)


async def cluster_settles(cluster: Cluster) -> None:
    await settled()
    assert not any("reloading the controller" in report for report in cluster.reports)


def test_an_unreadable_registration_is_ignored() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = await someone(cluster)
        await session.create("/brokers/ids/8", b"nonsense", ephemeral=True)
        async with cluster.controlled(0) as controller:
            await session.create("/brokers/ids/9", b"{}", ephemeral=True)
            await settled()
            state = controller.find_state()
            assert state is not None
            assert list(state.brokers) == [0]
            for name in ("/brokers/ids/8", "/brokers/ids/9"):
                assert any(name in report for report in cluster.reports)

    run_scenario(scenario)


def test_controlled_shutdown_leaves_no_partition_without_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled(0) as controller:
            await make(controller, "t", (1, 0))
            state = controller.find_state()
            assert state is not None
            left = await controller.controlled_shutdown(
                BrokerId(1), state.brokers[BrokerId(1)].epoch, timeout_ms=WAIT_MS
            )
            assert left == ()
            fake = cluster.channel.broker(0)
            assert fake.replicas[TopicPartition("t", 0)].leader == 0  # by the time of the response
            epoch = part(controller).leader_epoch
            await cluster.leave(1)
            await settled()
            assert (part(controller).leader, part(controller).leader_epoch) == (0, epoch)
            assert part(controller).leader != NO_BROKER

    run_scenario(scenario, 0, 1)


def test_a_state_written_by_another_client_makes_the_controller_reload() -> None:
    """A cached version must not be rejected forever (KAFKA-1382, KAFKA-2729)."""

    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled(0) as controller:
            await make(controller, "t", (0, 1))
            session = await someone(cluster)
            path = "/brokers/topics/t/partitions/0/state"
            value = await session.get(path)
            await session.set(path, value.data)
            with pytest.raises(Refusal) as refused:
                await in_sync(controller, 0)
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
            await controller.wait_ready()
            assert any("reloading the controller" in report for report in cluster.reports)
            assert part(controller).partition_epoch == value.stat.version + 1
            await in_sync(controller, 0)
            assert part(controller).in_sync == (0,)

    run_scenario(scenario, 0, 1)
