"""Brokers across ZooKeeper sessions: they re-register, are elected again, and are fenced if
late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.unit.controller.cluster import (
    NOW_MS,
    Cluster,
    node,
    run_scenario,
    same_state,
    settled,
)
from tests.unit.controller.crashing_session import CrashingSession

from penstock.controller.broker_registration import controller_election, register_broker
from penstock.controller.controller import Controller
from penstock.controller.interface import CreatableTopic
from penstock.logs.event_logger import message_logger
from penstock.metadata_store.errors import ConnectionLoss
from penstock.metadata_store.interface import (
    EventKind,
    Session,
    SessionId,
    Stat,
    Watch,
    WatchEvent,
)
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.server.broker_registration import BrokerRegistration
from penstock.server.current_session import CurrentSession

WAIT_MS = 30_000


@dataclass
class RegisteredBroker:
    """A broker whose registration and controller are real, and nothing else."""

    broker: int
    controller: Controller
    session: CurrentSession
    epochs: list[BrokerEpoch] = field(default_factory=list)

    async def lose_session(self) -> None:
        await self.session.close()  # as when the session expires

    async def register(self, session: Session, own_sessions: list[SessionId]) -> None:
        self.epochs.append(
            await register_broker(
                session, node(self.broker), now_ms=NOW_MS, own_sessions=own_sessions
            )
        )


@asynccontextmanager
async def running_members(cluster: Cluster, *brokers: int) -> AsyncIterator[list[RegisteredBroker]]:
    async with asyncio.TaskGroup() as tasks:
        members = [await _start(cluster, broker, tasks) for broker in brokers]
        await settled()
        yield members
        for member in members:
            await member.controller.close()


async def _start(cluster: Cluster, broker: int, tasks: asyncio.TaskGroup) -> RegisteredBroker:
    session = CurrentSession(await cluster.store.open_session())
    controller = cluster.controller(broker, session=session.current)
    member = RegisteredBroker(broker, controller, session)
    registration = BrokerRegistration(
        broker_id=BrokerId(broker),
        store=cluster.store,
        session=session,
        controller=controller,
        register=member.register,
        make_election=lambda item: controller_election(item, BrokerId(broker), now_ms=NOW_MS),
        logger=message_logger(cluster.reports.append),
    )
    await registration.register()
    tasks.create_task(registration.run())
    return member


def active_controllers(members: list[RegisteredBroker]) -> list[int]:
    return [member.broker for member in members if member.controller.find_state() is not None]


async def make_topic(controller: Controller, name: str) -> ErrorCode:
    topic = CreatableTopic(name=name, partitions=2, replication_factor=2)
    [created] = await controller.create_topics([topic], validate_only=False, timeout_ms=WAIT_MS)
    return getattr(created, "code", ErrorCode.NONE)


def test_one_of_several_brokers_is_the_controller_and_has_them_all() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.leave(0)
        async with running_members(cluster, 1, 2, 3) as members:
            assert active_controllers(members) == [1]
            state = members[0].controller.find_state()
            assert state is not None
            assert sorted(state.brokers) == [1, 2, 3]
            assert await make_topic(members[0].controller, "t") is ErrorCode.NONE
            assert await make_topic(members[1].controller, "u") is ErrorCode.NOT_CONTROLLER

    run_scenario(scenario)


def test_a_controller_with_an_expired_session_is_replaced_and_re_registers_as_a_broker() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.leave(0)
        async with running_members(cluster, 1, 2, 3) as members:
            await make_topic(members[0].controller, "t")
            await members[0].lose_session()
            await settled()
            [active] = active_controllers(members)
            assert active != 1
            successor = members[active - 1].controller.find_state()
            assert successor is not None
            assert sorted(successor.brokers) == [1, 2, 3]
            assert len(members[0].epochs) == 2
            assert successor.brokers[BrokerId(1)].epoch == members[0].epochs[-1]
            assert same_state((await cluster.reread()).state, successor)

    run_scenario(scenario)


def test_one_consistent_cluster_remains_after_sessions_expire_one_by_one() -> None:
    """KAFKA-1387, KAFKA-7165: no broker waits for a znode of its own expired session."""
    rounds = 100

    async def scenario(cluster: Cluster) -> None:
        await cluster.leave(0)
        async with running_members(cluster, 1, 2, 3) as members:
            await make_topic(members[0].controller, "t")
            for number in range(rounds):
                await members[number % 3].lose_session()
                await settled()
            assert len(active_controllers(members)) == 1
            [active] = active_controllers(members)
            state = members[active - 1].controller.find_state()
            assert state is not None
            assert sorted(state.brokers) == [1, 2, 3]
            assert same_state((await cluster.reread()).state, state)
            assert sum(len(member.epochs) for member in members) == 3 + rounds
            for member in members:
                assert member.epochs == sorted(set(member.epochs))
            assert all(part.leader > 0 for part in state.topics["t"].partitions)

    run_scenario(scenario)


def test_a_broker_that_re_registers_gets_its_full_state_with_higher_leader_epochs() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.leave(0)
        async with running_members(cluster, 1, 2) as members:
            await make_topic(members[0].controller, "t")
            before = cluster.channel.broker(2).replicas[TopicPartition("t", 0)]
            cluster.channel.brokers.pop(BrokerId(2))
            await members[1].lose_session()
            await settled()
            after = cluster.channel.broker(2).replicas[TopicPartition("t", 0)]
            assert after.leader_epoch > before.leader_epoch
            assert after.leader == 1
            assert "t" in cluster.channel.broker(2).topics

    run_scenario(scenario)


def test_watches_are_notified_when_their_session_expires() -> None:
    """The other tests rely on it."""

    async def scenario(cluster: Cluster) -> None:
        session = await cluster.store.open_session()
        events: list[WatchEvent] = []
        await session.exists("/nowhere", events.append)
        await session.close()
        await settled()
        assert [event.kind for event in events] == [EventKind.SESSION_ENDED]

    run_scenario(scenario)


def test_a_broker_that_restarts_while_no_controller_is_active_leaves_the_isr() -> None:
    """It may have lost the end of its log; only the zxid of its registration shows the restart."""

    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled(0) as controller:
            await make_topic(controller, "t")
            await make_single_replica_topic(controller)
        before = (await cluster.reread()).state.topics
        await cluster.leave(1)
        await cluster.join(1)
        async with cluster.controlled(0) as controller:
            state = controller.find_state()
            assert state is not None
            for old, new in zip(before["t"].partitions, state.topics["t"].partitions, strict=True):
                assert (new.leader, new.in_sync) == (0, (0,))
                assert new.leader_epoch == old.leader_epoch + 1
            assert state.topics["single"] == before["single"]  # it has no other replica
            written = cluster.store.tree.zxid
        async with cluster.controlled(0):
            assert cluster.store.tree.zxid - written <= 3  # a resignation and an election

    run_scenario(scenario, 0, 1)


async def make_single_replica_topic(controller: Controller) -> None:
    topic = CreatableTopic(name="single", assignment={0: (BrokerId(1),)})
    await controller.create_topics([topic], validate_only=False, timeout_ms=WAIT_MS)


class LossySession(CrashingSession):
    """A session that loses its connection right after an election, for every request."""

    def check(self) -> None:
        if self.transactions:
            raise ConnectionLoss("no response")

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self.check()
        return await super().exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        self.check()
        return await super().children(path, watch)


def test_a_connection_loss_of_several_requests_is_raised_once() -> None:
    """BrokerRegistration retries on a plain ConnectionLoss, not on a group of them."""

    async def scenario(cluster: Cluster) -> None:
        session = LossySession(cluster.sessions[0])
        with pytest.raises(ConnectionLoss):
            await cluster.controller(0, session=session).run()
        async with cluster.controlled(0) as controller:  # the next run succeeds
            assert await make_topic(controller, "t") is ErrorCode.INVALID_REPLICATION_FACTOR

    run_scenario(scenario)
