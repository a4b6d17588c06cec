"""Brokers over many sessions: registered anew, elected anew, fenced where they were too late."""

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
    same_facts,
    settled,
    tell,
)
from tests.unit.controller.crashing_session import CrashingSession

from penstock.controller.broker_registration import controller_election, register_broker
from penstock.controller.controller import Controller
from penstock.controller.interface import CreatableTopic
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
class Member:
    """A broker of which only the standing is real."""

    broker: int
    controller: Controller
    session: CurrentSession
    epochs: list[BrokerEpoch] = field(default_factory=list)

    async def lose_session(self) -> None:
        await self.session.close()  # as the tree ends it, when it has heard nothing for long

    async def register(self, session: Session, own_sessions: list[SessionId]) -> None:
        self.epochs.append(
            await register_broker(
                session, node(self.broker), now_ms=NOW_MS, own_sessions=own_sessions
            )
        )


@asynccontextmanager
async def members(cluster: Cluster, *brokers: int) -> AsyncIterator[list[Member]]:
    async with asyncio.TaskGroup() as tasks:
        found = [await _start(cluster, broker, tasks) for broker in brokers]
        await settled()
        yield found
        for member in found:
            await member.controller.close()


async def _start(cluster: Cluster, broker: int, tasks: asyncio.TaskGroup) -> Member:
    session = CurrentSession(await cluster.store.open_session())
    controller = cluster.controller(broker, session=session.current)
    member = Member(broker, controller, session)
    standing = BrokerRegistration(
        broker_id=BrokerId(broker),
        store=cluster.store,
        session=session,
        controller=controller,
        register=member.register,
        make_election=lambda item: controller_election(item, BrokerId(broker), now_ms=NOW_MS),
        report=cluster.reports.append,
    )
    await standing.register()
    tasks.create_task(standing.run())
    return member


def leading(found: list[Member]) -> list[int]:
    return [member.broker for member in found if member.controller.find_state() is not None]


async def make_topic(controller: Controller, name: str) -> ErrorCode:
    topic = CreatableTopic(name=name, partitions=2, replication_factor=2)
    [made] = await controller.create_topics([topic], validate_only=False, timeout_ms=WAIT_MS)
    return getattr(made, "code", ErrorCode.NONE)


def test_of_several_brokers_one_is_the_controller_and_knows_them_all() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.leave(0)
        async with members(cluster, 1, 2, 3) as found:
            assert leading(found) == [1]
            state = found[0].controller.find_state()
            assert state is not None
            assert sorted(state.brokers) == [1, 2, 3]
            assert await make_topic(found[0].controller, "t") is ErrorCode.NONE
            assert await make_topic(found[1].controller, "u") is ErrorCode.NOT_CONTROLLER

    tell(story)


def test_a_controller_that_loses_its_session_is_followed_and_comes_back_as_a_broker() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.leave(0)
        async with members(cluster, 1, 2, 3) as found:
            await make_topic(found[0].controller, "t")
            await found[0].lose_session()
            await settled()
            [now] = leading(found)
            assert now != 1
            successor = found[now - 1].controller.find_state()
            assert successor is not None
            assert sorted(successor.brokers) == [1, 2, 3]
            assert len(found[0].epochs) == 2
            assert successor.brokers[BrokerId(1)].epoch == found[0].epochs[-1]
            assert same_facts((await cluster.reread()).state, successor)

    tell(story)


def test_sessions_that_end_one_after_the_other_leave_one_cluster() -> None:
    """KAFKA-1387, KAFKA-7165: nobody is stuck behind a node of its own earlier session."""
    rounds = 100

    async def story(cluster: Cluster) -> None:
        await cluster.leave(0)
        async with members(cluster, 1, 2, 3) as found:
            await make_topic(found[0].controller, "t")
            for number in range(rounds):
                await found[number % 3].lose_session()
                await settled()
            assert len(leading(found)) == 1
            [now] = leading(found)
            state = found[now - 1].controller.find_state()
            assert state is not None
            assert sorted(state.brokers) == [1, 2, 3]
            assert same_facts((await cluster.reread()).state, state)
            assert sum(len(member.epochs) for member in found) == 3 + rounds
            for member in found:
                assert member.epochs == sorted(set(member.epochs))
            assert all(part.leader > 0 for part in state.topics["t"].partitions)

    tell(story)


def test_a_broker_that_registers_anew_gets_everything_anew_and_epochs_rise() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.leave(0)
        async with members(cluster, 1, 2) as found:
            await make_topic(found[0].controller, "t")
            before = cluster.channel.twin(2).replicas[TopicPartition("t", 0)]
            cluster.channel.brokers.pop(BrokerId(2))
            await found[1].lose_session()
            await settled()
            after = cluster.channel.twin(2).replicas[TopicPartition("t", 0)]
            assert after.leader_epoch > before.leader_epoch
            assert after.leader == 1
            assert "t" in cluster.channel.twin(2).topics

    tell(story)


def test_the_end_of_a_session_is_told_by_its_watches_too() -> None:
    """What the rest relies on."""

    async def story(cluster: Cluster) -> None:
        session = await cluster.store.open_session()
        told: list[WatchEvent] = []
        await session.exists("/nowhere", told.append)
        await session.close()
        await settled()
        assert [event.kind for event in told] == [EventKind.SESSION_ENDED]

    tell(story)


def test_who_came_back_while_no_controller_looked_is_not_in_sync() -> None:
    """It may have lost the end of its log: the tree's zxids tell, for nobody else can."""

    async def story(cluster: Cluster) -> None:
        async with cluster.controlled(0) as controller:
            await make_topic(controller, "t")
            await make_lone(controller)
        before = (await cluster.reread()).state.topics
        await cluster.leave(1)
        await cluster.join(1)
        async with cluster.controlled(0) as controller:
            state = controller.find_state()
            assert state is not None
            for old, new in zip(before["t"].partitions, state.topics["t"].partitions, strict=True):
                assert (new.leader, new.in_sync) == (0, (0,))
                assert new.leader_epoch == old.leader_epoch + 1
            assert state.topics["lone"] == before["lone"]  # with nobody to differ from
            written = cluster.store.tree.zxid
        async with cluster.controlled(0):
            assert cluster.store.tree.zxid - written <= 3  # the end of one, and an election

    tell(story, 0, 1)


async def make_lone(controller: Controller) -> None:
    lone = CreatableTopic(name="lone", assignment={0: (BrokerId(1),)})
    await controller.create_topics([lone], validate_only=False, timeout_ms=WAIT_MS)


class LostSession(CrashingSession):
    """Its connection is lost right after an election, for all who ask."""

    def check(self) -> None:
        if self.transactions:
            raise ConnectionLoss("no answer came")

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self.check()
        return await super().exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        self.check()
        return await super().children(path, watch)


def test_a_connection_that_several_find_lost_is_one_lost_connection() -> None:
    """Whoever runs the controller waits for the session then, and must know it for what it is."""

    async def story(cluster: Cluster) -> None:
        session = LostSession(cluster.sessions[0])
        with pytest.raises(ConnectionLoss):
            await cluster.controller(0, session=session).run()
        async with cluster.controlled(0) as controller:  # and it can go on from there
            assert await make_topic(controller, "t") is ErrorCode.INVALID_REPLICATION_FACTOR

    tell(story)
