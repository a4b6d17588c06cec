"""Brokers over real connections: controller requests, AlterPartition, shutdown, configs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.inter_broker.cluster_harness import (
    BROKERS,
    CLIENTS,
    BrokerHarness,
    ClusterHarness,
    run_scenario,
    until,
)

from penstock.client.address import Address
from penstock.client.call import PrivateCall
from penstock.client.connection import BrokerConnection
from penstock.client.errors import Disconnected
from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
    CreatableTopic,
    Reassignment,
)
from penstock.inter_broker.messages.controlled_shutdown import (
    CONTROLLED_SHUTDOWN_VERSIONS,
    ControlledShutdownRequest,
    encode_controlled_shutdown,
)
from penstock.inter_broker.messages.controller_request import encode_controller_request
from penstock.model.admin import ConfigOperation
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult, IsrMember
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerRequest,
    ControllerRequestBody,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.private_keys import PrivateKey

pytestmark = pytest.mark.xdist_group("cluster-harness")

WAIT_MS = 60_000
T0 = TopicPartition("t", 0)


async def make(broker: BrokerHarness, name: str, *replicas: tuple[int, ...]) -> TopicState:
    assignment = {
        partition: tuple(map(BrokerId, brokers)) for partition, brokers in enumerate(replicas)
    }
    [created] = await broker.administration.create_topics(
        [CreatableTopic(name=name, assignment=assignment)], validate_only=False, timeout_ms=WAIT_MS
    )
    assert isinstance(created, TopicState), created
    return created


def seen(broker: BrokerHarness, tp: TopicPartition = T0) -> PartitionState:
    topic = broker.metadata.find_topic(tp.topic)
    assert topic is not None
    return topic.partitions[tp.partition]


async def propose(
    broker: BrokerHarness, state: PartitionState, *in_sync: int
) -> AlterPartitionResult:
    topic = broker.metadata.find_topic("t")
    assert topic is not None
    answered: asyncio.Future[AlterPartitionResult] = asyncio.get_running_loop().create_future()
    members = tuple(IsrMember(BrokerId(number), BrokerEpoch(-1)) for number in in_sync)
    broker.alter_partition.propose(
        AlterPartitionProposal(
            topic.topic_id, T0.partition, state.leader_epoch, state.partition_epoch, members
        ),
        answered.set_result,
    )
    return await asyncio.wait_for(answered, 180)


def test_controller_requests_reach_every_broker_before_create_topics_responds() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        await make(cluster.controller, "t", (2, 3), (3, 1))
        for broker in cluster.brokers.values():
            assert seen(broker).leader == 2
        two, three = cluster.brokers[2], cluster.brokers[3]
        assert two.replicas.get(T0).is_leader
        assert not three.replicas.get(T0).is_leader
        assert three.replicas.get(TopicPartition("t", 1)).is_leader
        assert cluster.brokers[1].replicas.find(T0) is None

    run_scenario(scenario, 1, 2, 3)


def test_any_broker_forwards_create_topics_and_config_changes_to_the_controller() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        other = next(b for b in cluster.brokers.values() if b is not cluster.controller)
        made = await make(other, "t", (1, 2))
        assert len(made.partitions) == 1
        assert made.topic_id == seen_id(cluster.controller)
        changes = [
            ConfigResourceChange(
                scope=ConfigScope.TOPIC,
                name=name,
                changes=(ConfigEntryChange("retention.ms", ConfigOperation.SET, "77"),),
            )
            for name in ("t", "nowhere")
        ]
        done, refused = await other.administration.alter_configs(changes, validate_only=False)
        assert done is None
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = other.metadata.find_topic("t")
        assert topic is not None
        assert topic.configs == {"retention.ms": "77"}
        [again] = await other.administration.create_topics(
            [CreatableTopic(name="t")], validate_only=False, timeout_ms=WAIT_MS
        )
        assert isinstance(again, ApiError)
        assert again.code is ErrorCode.TOPIC_ALREADY_EXISTS
        [refusal] = await other.administration.delete_topics(["t"], timeout_ms=WAIT_MS)
        assert refusal is not None
        assert refusal.code is ErrorCode.NOT_CONTROLLER

    run_scenario(scenario, 1, 2)


def seen_id(broker: BrokerHarness) -> object:
    topic = broker.metadata.find_topic("t")
    assert topic is not None
    return topic.topic_id


@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_alters_its_isr_wherever_the_controller_is(leader: int) -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        await make(cluster.controller, "t", (leader, 3 - leader))
        broker = cluster.brokers[leader]
        before = seen(broker)
        answer = await propose(broker, before, leader)
        assert answer.code is ErrorCode.NONE
        assert answer.state is not None
        assert (answer.state.in_sync, answer.state.partition_epoch) == ((leader,), 1)
        again = await propose(broker, before, leader)
        assert again == answer
        late = await propose(broker, before, leader, 3 - leader)
        assert (late.code, late.state) == (ErrorCode.INVALID_UPDATE_VERSION, answer.state)
        stranger = await propose(cluster.brokers[3 - leader], before, leader)
        assert (stranger.code, stranger.state) == (ErrorCode.INVALID_REQUEST, None)
        await until(lambda: seen(broker).in_sync == (leader,))

    run_scenario(scenario, 1, 2)


def test_a_proposal_without_a_controller_has_a_retriable_result() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        await make(cluster.controller, "t", (2, 1))
        broker = cluster.brokers[2]
        assert cluster.controller.id == 1
        broker.metadata.controller_id = BrokerId(9)  # a dead broker
        answer = await propose(broker, seen(broker), 2)
        assert (answer.code, answer.code.is_retriable) == (ErrorCode.NOT_CONTROLLER, True)
        broker.metadata.controller_id = broker.id  # which is not the controller
        answer = await propose(broker, seen(broker), 2)
        assert answer.code is ErrorCode.NOT_CONTROLLER

    run_scenario(scenario, 1, 2)


def test_controlled_shutdown_moves_leaders_once_a_follower_is_in_sync() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        await make(cluster.controller, "t", (2, 1))
        one, two = cluster.brokers[1], cluster.brokers[2]
        assert (await propose(two, seen(two), 2)).code is ErrorCode.NONE
        assert not await two.shutdown.run(two.handler.broker_epoch)
        assert len([report for report in two.reports if "t-0 among them" in report]) == 3
        assert (await propose(two, seen(two), 2, 1)).code is ErrorCode.NONE
        assert await two.shutdown.run(two.handler.broker_epoch)
        assert one.replicas.get(T0).is_leader  # by the time run() returns
        await until(lambda: seen(two).leader == 1)
        assert await one.shutdown.run(one.handler.broker_epoch)  # no other broker can take over
        assert seen(one).leader == 1

    run_scenario(scenario, 1, 2)


def test_a_killed_broker_is_succeeded_and_deletes_reassigned_replicas_on_restart() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        await make(cluster.controller, "t", (2, 1))
        dead = cluster.brokers.pop(2)
        await dead.kill()
        one = cluster.brokers[1]
        await until(lambda: seen(one).leader == 1 and one.replicas.get(T0).is_leader)
        await cluster.add(3)
        await cluster.wait_joined()
        [answer] = await cluster.controller.controller.alter_reassignments(
            [Reassignment(T0, (BrokerId(1), BrokerId(3)))],
            allow_replication_factor_change=True,
            timeout_ms=WAIT_MS,
        )
        assert answer is None
        await until(lambda: cluster.brokers[3].replicas.find(T0) is not None)
        assert (await propose(one, seen(one), 1, 3)).code is ErrorCode.NONE
        await until(lambda: seen(one).replicas == (1, 3))
        # The broker restarts with its data, and gets the reassignment.
        dead.replicas.adopt({})
        cluster.brokers[2] = dead
        dead.connections = type(dead.connections)(own_id=dead.id, listener=BROKERS)
        dead.timers = type(dead.timers)()
        await dead.start()
        await cluster.wait_joined()
        await until(lambda: dead.replicas.find(T0) is None)
        assert any("reassigned to other brokers" in report for report in dead.reports)

    run_scenario(scenario, 1, 2)


def test_requests_of_a_replaced_controller_are_rejected() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        await make(cluster.controller, "t", (2, 3))
        old = cluster.controller
        state = old.controller.find_state()
        assert state is not None
        await old.session.close()  # as if partitioned from ZooKeeper for too long
        await until(lambda: old.handler.broker_epoch > state.brokers[old.id].epoch)
        await cluster.wait_joined()
        assert cluster.controller is not old
        three = cluster.brokers[3]
        stale = UpdateMetadataRequest(
            controller_id=old.id, controller_epoch=state.controller_epoch, is_full=True
        )
        with pytest.raises(Refusal) as refused:
            three.handler.handle(ControllerRequest(three.handler.broker_epoch, stale, 1))
        assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert seen(three).leader == 2

    run_scenario(scenario, 1, 2, 3)


def test_a_stale_broker_epoch_is_rejected_and_a_newer_one_is_accepted() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        one = cluster.brokers[1]
        update = UpdateMetadataRequest(
            controller_id=BrokerId(1), controller_epoch=ControllerEpoch(50), is_full=False
        )
        epoch = one.handler.broker_epoch
        with pytest.raises(Refusal) as refused:
            one.handler.handle(ControllerRequest(BrokerEpoch(epoch - 1), update, 1))
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        one.handler.handle(ControllerRequest(BrokerEpoch(epoch + 1), replace(update), 1))
        assert one.metadata.controller_epoch == 50

    run_scenario(scenario, 1)


def test_an_unregistered_broker_rejects_controller_requests_and_gets_them_again() -> None:
    """The request could be for the previous incarnation, whose registration still exists."""

    async def scenario(cluster: ClusterHarness) -> None:
        await make(cluster.controller, "t", (1, 2))
        two = cluster.brokers[2]
        epoch = two.handler.broker_epoch
        two.handler.broker_epoch = BrokerEpoch(-1)
        making = asyncio.ensure_future(make(cluster.controller, "u", (2, 1)))
        await until(
            lambda: any("cannot be reached" in report for report in cluster.controller.reports)
        )
        assert two.replicas.find(TopicPartition("u", 0)) is None
        two.handler.broker_epoch = epoch
        await making
        assert two.replicas.find(TopicPartition("u", 0)) is not None

    run_scenario(scenario, 1, 2)


def test_a_late_copy_of_a_controller_request_changes_nothing() -> None:
    """Its connection was closed, and newer requests arrived first."""

    async def scenario(cluster: ClusterHarness) -> None:
        topic = await make(cluster.controller, "t", (1,))
        one = cluster.brokers[1]
        epoch = one.handler.broker_epoch
        head: dict[str, Any] = {
            "controller_id": BrokerId(1),
            "controller_epoch": ControllerEpoch(50),
        }
        entry = LeaderAndIsrPartition(T0, topic.topic_id, topic.partitions[0], False)
        stop = StopReplicaRequest(**head, broker_epoch=epoch, partitions=(T0,), delete=True)
        lead = LeaderAndIsrRequest(**head, broker_epoch=epoch, partitions=(entry,))
        forget = UpdateMetadataRequest(**head, is_full=False, deleted_topics=("t",))
        learn = UpdateMetadataRequest(**head, is_full=False, topics=(topic,))

        def send(number: int, body: ControllerRequestBody) -> None:
            one.handler.handle(ControllerRequest(epoch, body, number))

        bodies: tuple[ControllerRequestBody, ...] = (stop, forget, lead, learn)
        for number, body in enumerate(bodies, 1):
            send(number, body)
        for number, copy in ((1, stop), (2, forget), (4, forget)):
            send(number, copy)
            assert one.metadata.find_topic("t") is topic
            assert one.replicas.find(T0) is not None
        send(5, forget)
        assert one.metadata.find_topic("t") is None

    run_scenario(scenario, 1)


async def connect(broker: BrokerHarness, listener: str) -> BrokerConnection:
    endpoint = broker.address(listener)
    return await BrokerConnection.open(Address(endpoint.host, endpoint.port))


def test_private_requests_are_served_on_the_inter_broker_listener_only() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        one = cluster.brokers[1]
        update = UpdateMetadataRequest(
            controller_id=BrokerId(7), controller_epoch=ControllerEpoch(70), is_full=True
        )
        request = encode_controller_request(ControllerRequest(one.handler.broker_epoch, update, 1))
        shutdown = encode_controlled_shutdown(
            ControlledShutdownRequest(one.id, one.handler.broker_epoch, 100)
        )
        for key, body in (
            (PrivateKey.CONTROLLER_REQUEST, request),
            (PrivateKey.CONTROLLED_SHUTDOWN, shutdown),
            (PrivateKey.FORWARDED_CONFIGS, b"\0\1\0"),
        ):
            client = await connect(one, CLIENTS)
            with pytest.raises(Disconnected):
                await client.call(PrivateCall(key, 0, body), timeout_ms=30_000)
        assert one.metadata.controller_epoch < 70
        assert one.controller.find_state() is not None
        broker = await connect(one, BROKERS)
        answer = await broker.call(
            PrivateCall(PrivateKey.CONTROLLER_REQUEST, 0, request), timeout_ms=30_000
        )
        assert answer.code is ErrorCode.NONE
        assert one.metadata.controller_epoch == 70
        await broker.close()

    run_scenario(scenario, 1)


def test_the_metadata_of_a_large_cluster_arrives_in_parts_and_is_applied_at_once() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        one, two = cluster.brokers[1], cluster.brokers[2]
        state = PartitionState(one.id, LeaderEpoch(0), (one.id,), (one.id,))
        update = UpdateMetadataRequest(
            controller_id=two.id,
            controller_epoch=ControllerEpoch(70),
            is_full=True,
            brokers=tuple(one.metadata.brokers.values()),
            topics=tuple(
                TopicState(
                    name=f"topic-{number}",
                    topic_id=TopicId(UUID(int=number + 1)),
                    partitions=(state,) * 2_000,
                )
                for number in range(5)
            ),
        )
        seen: list[int] = []
        one.metadata.listen(lambda applied: seen.append(len(applied.topics)))
        request = ControllerRequest(one.handler.broker_epoch, update, 1)
        await two.channel.send(two.metadata.brokers[one.id], request)
        assert seen == [5]
        cached = [one.metadata.find_topic(topic.name) for topic in update.topics]
        assert tuple(cached) == update.topics

    run_scenario(scenario, 1, 2)


def test_an_unsupported_version_gets_the_supported_ones() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        broker = await connect(cluster.brokers[1], BROKERS)
        call = PrivateCall(PrivateKey.CONTROLLED_SHUTDOWN, 9, b"whatever")
        answer = await broker.call(call, timeout_ms=30_000)
        assert answer.code is ErrorCode.UNSUPPORTED_VERSION
        assert (answer.first_version, answer.last_version) == (0, CONTROLLED_SHUTDOWN_VERSIONS[-1])
        await broker.close()
        two = cluster.brokers[2]
        node = two.metadata.brokers[BrokerId(1)]
        body = encode_controlled_shutdown(
            ControlledShutdownRequest(BrokerId(5), BrokerEpoch(5), 100)
        )
        newer = await two.connections.call_private(
            node, PrivateKey.CONTROLLED_SHUTDOWN, range(4), lambda version: body, timeout_ms=30_000
        )
        assert newer.code is ErrorCode.STALE_BROKER_EPOCH  # handled in version 0
        with pytest.raises(ConnectionError, match="upgrade the older"):
            await two.connections.call_private(
                node,
                PrivateKey.CONTROLLER_REQUEST,
                range(2, 4),
                lambda version: b"",
                timeout_ms=30_000,
            )

    run_scenario(scenario, 1, 2)


def test_an_unexpected_error_in_a_controller_request_ends_the_broker() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        one = cluster.brokers[1]
        update = UpdateMetadataRequest(
            controller_id=BrokerId(7), controller_epoch=ControllerEpoch(70), is_full=True
        )
        body = encode_controller_request(ControllerRequest(one.handler.broker_epoch, update, 1))

        def fail(update: UpdateMetadataRequest) -> None:
            raise LookupError("a listener of the metadata is broken")

        one.metadata.listen(fail)
        broker = await connect(one, BROKERS)
        call = PrivateCall(PrivateKey.CONTROLLER_REQUEST, 0, body)
        try:
            await broker.call(call, timeout_ms=30_000)
        finally:
            await broker.close()
            await one.server.close(0)
            await one.connections.close()

    with pytest.raises(ExceptionGroup) as ended:
        run_scenario(scenario, 1)
    assert ended.group_contains(LookupError, match="a listener of the metadata is broken")


def test_a_malformed_private_request_closes_only_its_connection() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        one = cluster.brokers[1]
        for body in (b"", b"\xff" * 40, bytes(17)):
            broker = await connect(one, BROKERS)
            with pytest.raises(Disconnected):
                await broker.call(
                    PrivateCall(PrivateKey.CONTROLLER_REQUEST, 0, body), timeout_ms=30_000
                )
        closed = [report for report in one.reports if "connection closed" in report]
        assert len(closed) == 3
        assert all("ControllerRequest v0: " in report for report in closed)
        assert one.controller.find_state() is not None

    run_scenario(scenario, 1)
