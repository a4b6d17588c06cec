"""A controller that crashes at any transaction.

Every request takes effect completely or not at all, and znodes, controller and brokers agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

import pytest
from tests.profile import scaled
from tests.unit.controller.cluster import Cluster, code_of, opened, same_state, settled
from tests.unit.controller.crashing_session import Crash, CrashingSession

from penstock.controller.controller import Controller
from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
    CreatableTopic,
    NewPartitions,
)
from penstock.controller.state import ClusterState
from penstock.model.admin import ConfigOperation
from penstock.model.cluster import NO_BROKER
from penstock.model.errors import ErrorCode
from penstock.testing.simulated_disk import SimulatedDisk

SEEDS = scaled(test=5, verify=100, release=1000)
NAMES = ("a", "b.c", "long-" + "x" * 60)
BROKERS = (0, 1, 2)
SMALL_BYTES = 1500  # small, so that most topics take several transactions
WAIT_MS = 30_000


class Topic(NamedTuple):
    partitions: int
    configs: Mapping[str, str]


Model = Mapping[str, Topic]


class Action(NamedTuple):
    kind: str
    name: str
    number: int


def actions(random: Random) -> list[Action]:
    kinds = ("create", "create", "delete", "grow", "alter", "leave", "join")
    return [
        Action(random.choice(kinds), random.choice(NAMES), random.randrange(1, 9))
        for _ in range(10)
    ]


def expected(model: Model, action: Action) -> tuple[ErrorCode, Model]:
    """The result of an action, and the topics after it."""
    topic = model.get(action.name)
    match action.kind:
        case "create" if topic is not None:
            return ErrorCode.TOPIC_ALREADY_EXISTS, model
        case "create":
            return ErrorCode.NONE, {**model, action.name: Topic(action.number, {})}
        case _ if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, model
        case "delete":
            return ErrorCode.NONE, {n: topic for n, topic in model.items() if n != action.name}
        case "grow" if action.number <= topic.partitions:
            return ErrorCode.INVALID_PARTITIONS, model
        case "grow":
            return ErrorCode.NONE, {**model, action.name: topic._replace(partitions=action.number)}
        case "alter":
            configs = {**topic.configs, "retention.ms": str(action.number)}
            return ErrorCode.NONE, {**model, action.name: topic._replace(configs=configs)}
    raise AssertionError(action)


async def ask(controller: Controller, action: Action) -> Sequence[object]:
    match action.kind:
        case "create":
            topic = CreatableTopic(name=action.name, partitions=action.number, replication_factor=2)
            return await controller.create_topics([topic], validate_only=False, timeout_ms=WAIT_MS)
        case "delete":
            return await controller.delete_topics([action.name], timeout_ms=WAIT_MS)
        case "grow":
            more = NewPartitions(name=action.name, total=action.number)
            return await controller.create_partitions(
                [more], validate_only=False, timeout_ms=WAIT_MS
            )
        case _:
            setting = ConfigEntryChange("retention.ms", ConfigOperation.SET, str(action.number))
            change = ConfigResourceChange(
                scope=ConfigScope.TOPIC, name=action.name, changes=(setting,)
            )
            return await controller.alter_configs([change], validate_only=False)


class Life:
    """One process of the controller's broker, on a disk that survives it."""

    def __init__(self, model: Model) -> None:
        self.possible = [model]  # the states that may be found if the process crashes now
        self.transactions = 0
        self.is_dead = False

    async def live(
        self, disk: SimulatedDisk, plan: list[Action], at: int | None, is_done: bool
    ) -> None:
        async with opened(disk, *BROKERS) as cluster:
            session = CrashingSession(cluster.sessions[0], at=at, is_done=is_done)
            controller = cluster.controller(session=session, transaction_bytes=SMALL_BYTES)
            running = asyncio.create_task(controller.run())
            ready = asyncio.create_task(controller.wait_ready())
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
            for action in plan if ready.done() else ():
                if not self.is_dead:
                    await self._do(cluster, controller, action)
            ready.cancel()
            await controller.close()
            with suppress(Crash):
                await running
            self.transactions = session.transactions

    async def _do(self, cluster: Cluster, controller: Controller, action: Action) -> None:
        if action.kind in ("leave", "join"):
            await self._move(cluster, controller, action.kind)
            return
        if len(cluster.sessions) < len(BROKERS):
            return  # the deletion would wait for the offline replica, which other tests cover
        code, after = expected(self.possible[-1], action)
        self.possible = [self.possible[-1], after]
        [answer] = await ask(controller, action)
        if isinstance(answer, ApiError) and answer.code is ErrorCode.NOT_CONTROLLER:
            self.is_dead = True  # the process crashed in this request
            return
        assert code_of(answer) is code, (action, answer)
        self.possible = [after]
        await check(cluster, controller.find_state(), after)

    async def _move(self, cluster: Cluster, controller: Controller, kind: str) -> None:
        if kind == "leave" and 2 in cluster.sessions:
            await cluster.leave(2)
        elif kind == "join" and 2 not in cluster.sessions:
            await cluster.join(2)
        await settled()
        state = controller.find_state()
        self.is_dead = state is None
        if state is not None:
            await check(cluster, state, self.possible[-1])


async def check(cluster: Cluster, state: ClusterState | None, model: Model) -> None:
    assert state is not None
    stored = {name: Topic(len(t.partitions), t.configs) for name, t in state.topics.items()}
    assert stored == model
    fresh = await cluster.reread()
    assert fresh.writes == ()
    assert same_state(fresh.state, state)
    check_partitions(state)
    for broker in state.brokers:
        fake = cluster.channel.broker(broker)
        assert fake.topics == state.topics
        assert fake.brokers == tuple(state.brokers.values())
        assert fake.replicas == {
            (name, number): partition
            for name, topic in state.topics.items()
            for number, partition in enumerate(topic.partitions)
            if broker in partition.replicas
        }
    check_nothing_else(cluster, state)


def check_partitions(state: ClusterState) -> None:
    for topic in state.topics.values():
        for partition in topic.partitions:
            assert partition.in_sync
            assert set(partition.in_sync) <= set(partition.replicas)
            if partition.leader != NO_BROKER:
                assert partition.leader in partition.in_sync
                assert set(partition.in_sync) <= set(state.brokers)


def check_nothing_else(cluster: Cluster, state: ClusterState) -> None:
    tree = cluster.store.tree
    assert set(tree.children("/brokers/topics")) == set(state.topics)
    assert set(tree.children("/config/topics")) == set(state.topics)
    assert tree.children("/admin/delete_topics") == ()
    for name, topic in state.topics.items():
        numbers = {str(number) for number in range(len(topic.partitions))}
        assert set(tree.children(f"/brokers/topics/{name}/partitions")) == numbers


async def recover(disk: SimulatedDisk, possible: list[Model]) -> Model:
    """The next process completes what was begun, and finds one of the possible states."""
    async with opened(disk, *BROKERS) as cluster, cluster.controlled() as controller:
        await settled()
        state = controller.find_state()
        assert state is not None
        stored = {name: Topic(len(t.partitions), t.configs) for name, t in state.topics.items()}
        assert stored in possible
        await check(cluster, state, stored)
        return stored


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_crash_at_any_transaction_leaves_each_request_done_or_not(seed: int) -> None:
    plan = actions(Random(seed))

    async def scenario() -> int:
        whole = Life({})
        await whole.live(SimulatedDisk("/data"), plan, None, False)
        for at in range(whole.transactions):
            for is_done in (False, True):
                disk = SimulatedDisk("/data")
                life = Life({})
                await life.live(disk, plan, at, is_done)
                await recover(disk, life.possible)
        return whole.transactions

    assert asyncio.run(scenario()) > 1


def test_a_second_crash_during_repair_changes_nothing() -> None:
    """Two crashes in a row, the second at every transaction of the next process."""
    plan = [Action("create", NAMES[2], 8), Action("delete", NAMES[2], 1)]

    async def scenario() -> int:
        lives = 0
        for first in range(1, 12):
            second = 0
            while True:
                disk = SimulatedDisk("/data")
                life, next_life = Life({}), None
                await life.live(disk, plan, first, False)
                next_life = Life(life.possible[-1])
                await next_life.live(disk, [], second, True)
                await recover(disk, life.possible)
                lives += 1
                if next_life.transactions <= second:
                    break
                second += 1
        return lives

    assert asyncio.run(scenario()) > 11
