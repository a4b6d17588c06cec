"""The controller over the real tree: its answers, what the tree holds, what brokers hear."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from errno import EIO

import pytest
from tests.unit.controller.cluster import Cluster, code_of, opened, same_facts, settled, tell
from tests.unit.controller.crashing_session import CrashingSession

from penstock.config.raw_config import RawConfig
from penstock.controller.controller import MAX_QUEUED_REQUESTS, Controller
from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
    CreatableTopic,
    NewPartitions,
)
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.metadata_store.interface import Operation, Result
from penstock.model.admin import ConfigOperation
from penstock.model.cluster import (
    NO_BROKER,
    BrokerId,
    LeaderAndIsrRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.testing.simulated_disk import OperationKind, SimulatedDisk

WAIT_MS = 30_000
SOON_MS = 60  # where nothing but the end of the time is waited for


async def create(
    controller: Controller, *topics: CreatableTopic, timeout_ms: int = WAIT_MS
) -> list[ErrorCode]:
    answers = await controller.create_topics(topics, validate_only=False, timeout_ms=timeout_ms)
    return [code_of(answer) for answer in answers]


async def delete(controller: Controller, *names: str, timeout_ms: int = WAIT_MS) -> list[ErrorCode]:
    answers = await controller.delete_topics(names, timeout_ms=timeout_ms)
    return [code_of(answer) for answer in answers]


def replicated(name: str, *replicas: tuple[int, ...]) -> CreatableTopic:
    assignment = {n: tuple(map(BrokerId, each)) for n, each in enumerate(replicas)}
    return CreatableTopic(name=name, assignment=assignment)


def setting(scope: ConfigScope, name: str, key: str, text: str) -> ConfigResourceChange:
    return ConfigResourceChange(
        scope=scope, name=name, changes=(ConfigEntryChange(key, ConfigOperation.SET, text),)
    )


class GatedSession(CrashingSession):
    """Its transactions wait until the gate is open."""

    gate: asyncio.Event | None = None

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        if self.gate is not None:
            await self.gate.wait()
        return await super().multi(operations)


class CutSession(CrashingSession):
    """Its connection breaks in the next transaction, once it is cut."""

    is_cut = False

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        if self.is_cut:
            self.is_cut = False
            raise ConnectionLoss("nobody knows")
        return await super().multi(operations)


# Topics.


def test_a_created_topic_is_led_and_known_when_the_answer_comes() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            [made] = await controller.create_topics(
                [CreatableTopic(name="orders", partitions=3)],
                validate_only=False,
                timeout_ms=WAIT_MS,
            )
            assert isinstance(made, TopicState)
            twin = cluster.channel.twin()
            assert twin.topics["orders"] == made
            assert [twin.replicas[TopicPartition("orders", n)].leader for n in range(3)] == [0] * 3

    tell(scenario)


def test_after_a_restart_everything_is_told_again_and_nothing_written() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        async with opened(disk) as cluster, cluster.controlled() as controller:
            assert await create(controller, CreatableTopic(name="orders", partitions=3)) == [0]
            before = cluster.channel.twin()
        async with opened(disk) as cluster:
            session = CrashingSession(cluster.sessions[0])
            async with cluster.controlled(session=session):
                assert session.transactions == 1  # the election
                assert cluster.channel.twin().topics == before.topics
                assert cluster.channel.twin().replicas == before.replicas

    asyncio.run(scenario())


def test_validation_answers_as_the_real_thing_and_writes_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="t"))
            zxid, orders = cluster.store.tree.zxid, len(cluster.channel.twin().orders)
            made, refused = await controller.create_topics(
                [CreatableTopic(name="u"), CreatableTopic(name="t")],
                validate_only=True,
                timeout_ms=WAIT_MS,
            )
            assert isinstance(made, TopicState)
            assert code_of(refused) is ErrorCode.TOPIC_ALREADY_EXISTS
            grown = await controller.create_partitions(
                [NewPartitions(name="t", total=4), NewPartitions(name="t2", total=4)],
                validate_only=True,
                timeout_ms=WAIT_MS,
            )
            assert [code_of(error) for error in grown] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            changes = [setting(ConfigScope.TOPIC, "t", "retention.ms", "x")]
            altered = await controller.alter_configs(changes, validate_only=True)
            assert [code_of(error) for error in altered] == [ErrorCode.INVALID_CONFIG]
            assert cluster.store.tree.zxid == zxid
            assert len(cluster.channel.twin().orders) == orders

    tell(scenario)


def test_a_long_request_is_one_request() -> None:
    """Though it is decided in portions: names twice, collisions and limits span all of it."""

    async def scenario(cluster: Cluster) -> None:
        names = [f"t{number}" for number in range(130)]
        names[0] = names[125] = "twice"
        names[1], names[120] = "x.y", "x_y"
        topics = [CreatableTopic(name=name, partitions=2) for name in names]
        for validate_only in (True, False):
            async with cluster.controlled(max_partitions_per_request=240) as controller:
                answers = await controller.create_topics(
                    topics, validate_only=validate_only, timeout_ms=WAIT_MS
                )
                codes = [code_of(answer) for answer in answers]
                assert codes[0] == codes[125] == ErrorCode.INVALID_REQUEST
                assert codes[120] == ErrorCode.INVALID_TOPIC_EXCEPTION
                assert codes[1:120] == [0] * 119
                assert codes[121] == ErrorCode.NONE
                assert set(codes[122:125] + codes[126:]) == {ErrorCode.POLICY_VIOLATION}
        assert len(cluster.store.tree.children("/brokers/topics")) == 120

    tell(scenario)


def test_changed_settings_are_with_the_broker_when_the_answer_comes() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="t"))
            changes = [
                setting(ConfigScope.TOPIC, "t", "retention.ms", "7"),
                setting(ConfigScope.BROKER, "", "log.retention.ms", "8"),
            ]
            assert await controller.alter_configs(changes, validate_only=False) == [None, None]
            twin = cluster.channel.twin()
            assert twin.topics["t"].configs == {"retention.ms": "7"}
            assert twin.broker_configs == {"": {"log.retention.ms": "8"}}

    tell(scenario)


# Deletion.


def test_a_deleted_topic_leaves_nothing_behind_and_can_be_made_anew() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            before = cluster.store.tree.node_count
            await create(controller, CreatableTopic(name="orders", partitions=3))
            first = cluster.channel.twin().topics["orders"].topic_id
            codes = await delete(controller, "orders", "other")
            assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert cluster.store.tree.node_count == before
            assert cluster.channel.twin().topics == {}
            assert cluster.channel.twin().replicas == {}
            assert await create(controller, CreatableTopic(name="orders")) == [ErrorCode.NONE]
            assert cluster.channel.twin().topics["orders"].topic_id != first

    tell(scenario)


def test_topics_stay_where_deletion_is_not_allowed() -> None:
    async def scenario(cluster: Cluster) -> None:
        static = RawConfig.from_mapping({"delete.topic.enable": "false"}, where="file")
        async with cluster.controlled(static=static) as controller:
            await create(controller, CreatableTopic(name="t"))
            assert await delete(controller, "t") == [ErrorCode.TOPIC_DELETION_DISABLED]
            assert list(cluster.channel.twin().topics) == ["t"]

    tell(scenario)


def test_a_topic_with_a_replica_on_a_dead_broker_goes_when_that_is_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (0, 1)))
            await cluster.leave(1)
            await settled()
            deletion = asyncio.create_task(delete(controller, "t"))
            await settled()
            assert not deletion.done()
            assert cluster.channel.twin(0).topics == {}  # clients see no more of it
            assert await create(controller, CreatableTopic(name="t")) == [
                ErrorCode.TOPIC_ALREADY_EXISTS
            ]
            again = asyncio.create_task(delete(controller, "t"))  # one may ask twice
            assert TopicPartition("t", 0) in cluster.channel.twin(1).replicas
            await cluster.join(1)
            assert await deletion == await again == [ErrorCode.NONE]
            assert cluster.channel.twin(1).replicas == {}
            assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NONE]

    tell(scenario, 0, 1)


def test_a_broker_that_dies_over_a_deletion_has_not_removed_anything() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (0, 1)))
            cluster.channel.unreachable.add(BrokerId(1))
            deletion = asyncio.create_task(delete(controller, "t"))
            await settled()
            assert list(cluster.channel.twin(0).topics) == ["t"]
            await cluster.leave(1)
            await settled()
            assert not deletion.done()
            assert cluster.channel.twin(0).topics == {}
            assert cluster.store.tree.children("/admin/delete_topics") == ("t",)
            cluster.channel.unreachable.clear()
            await cluster.join(1)
            assert await deletion == [ErrorCode.NONE]
            assert cluster.channel.twin(1).replicas == {}

    tell(scenario, 0, 1)


def test_who_does_not_wait_for_a_deletion_is_told_so_and_it_goes_on() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (0, 1)))
            cluster.channel.unreachable.add(BrokerId(1))
            codes = await delete(controller, "t", timeout_ms=SOON_MS)
            assert codes == [ErrorCode.REQUEST_TIMED_OUT]
            cluster.channel.unreachable.clear()
            assert await delete(controller, "t") == [ErrorCode.NONE]
            assert cluster.store.tree.children("/brokers/topics") == ()

    tell(scenario, 0, 1)


# Brokers.


def test_when_a_broker_dies_another_leads_and_all_know() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (1, 2), (2, 0)))
            await cluster.leave(1)
            await settled()
            for broker in (0, 2):
                twin = cluster.channel.twin(broker)
                assert [broker.id for broker in twin.brokers] == [0, 2]
                assert [p.leader for p in twin.topics["t"].partitions] == [2, 2]
            assert cluster.channel.twin(2).replicas[TopicPartition("t", 0)].in_sync == (2,)
            fresh = await cluster.reread()
            state = controller.find_state()
            assert state is not None
            assert same_facts(fresh.state, state)

    tell(scenario, 0, 1, 2)


def test_a_broker_that_is_back_leads_what_only_it_has() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (1,)))
            await cluster.leave(1)
            await settled()
            assert cluster.channel.twin(0).topics["t"].partitions[0].leader == NO_BROKER
            epoch = await cluster.join(1)
            await settled()
            [state] = cluster.channel.twin(0).topics["t"].partitions
            assert (state.leader, state.leader_epoch) == (1, 2)
            last = [
                o for o in cluster.channel.twin(1).orders if isinstance(o, LeaderAndIsrRequest)
            ][-1]
            assert last.broker_epoch == epoch

    tell(scenario, 0, 1)


def test_a_topic_that_comes_to_allow_it_is_led_by_who_lacks_records() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (1, 2)), replicated("u", (1, 2)))
            await cluster.leave(2)  # falls behind
            await settled()
            await cluster.join(2)
            await settled()
            await cluster.leave(1)
            await settled()
            twin = cluster.channel.twin(0)
            assert twin.topics["t"].partitions[0].leader == NO_BROKER
            change = setting(ConfigScope.TOPIC, "t", "unclean.leader.election.enable", "true")
            assert await controller.alter_configs([change], validate_only=False) == [None]
            assert twin.topics["t"].partitions[0].leader == 2
            assert twin.topics["u"].partitions[0].leader == NO_BROKER
            change = setting(ConfigScope.BROKER, "", "unclean.leader.election.enable", "true")
            assert await controller.alter_configs([change], validate_only=False) == [None]
            assert twin.topics["u"].partitions[0].leader == 2

    tell(scenario, 0, 1, 2)


def test_a_broker_that_does_not_answer_holds_up_nobody_and_hears_of_all_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            cluster.channel.unreachable.add(BrokerId(1))
            waiting = asyncio.create_task(create(controller, CreatableTopic(name="t")))
            await settled()
            assert not waiting.done()
            assert list(cluster.channel.twin(0).topics) == ["t"]
            assert cluster.channel.twin(1).topics == {}
            [refused] = await create(controller, CreatableTopic(name="t"))
            assert refused is ErrorCode.TOPIC_ALREADY_EXISTS
            cluster.channel.unreachable.clear()
            assert await waiting == [ErrorCode.NONE]
            assert await create(controller, CreatableTopic(name="u")) == [ErrorCode.NONE]
            assert list(cluster.channel.twin(1).topics) == ["t", "u"]

    tell(scenario, 0, 1)


def test_who_waits_for_a_broker_waits_no_longer_than_its_registration_stands() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            cluster.channel.unreachable.add(BrokerId(1))
            creation = asyncio.create_task(create(controller, replicated("t", (0,))))
            await settled()
            assert not creation.done()
            await cluster.leave(1)
            assert await creation == [ErrorCode.NONE]

    tell(scenario, 0, 1)


# Leadership.


def test_whoever_is_not_the_controller_says_so() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled(0):
            other = cluster.controller(1)
            running = asyncio.create_task(other.run())
            await settled()
            assert not other.statistics().is_active
            assert await create(other, CreatableTopic(name="t")) == [ErrorCode.NOT_CONTROLLER]
            assert await delete(other, "t") == [ErrorCode.NOT_CONTROLLER]
            await other.close()
            await running

    tell(scenario, 0, 1)


def test_the_next_controller_knows_all_that_the_last_one_did() -> None:
    async def scenario(cluster: Cluster) -> None:
        other = cluster.controller(1)
        async with asyncio.TaskGroup() as tasks:
            async with cluster.controlled(0) as controller:
                tasks.create_task(other.run())
                await create(controller, CreatableTopic(name="t", partitions=3))
                before = controller.find_state()
            await other.wait_ready()
            after = other.find_state()
            assert before is not None
            assert after is not None
            assert same_facts(before, after)
            assert (after.controller_id, after.controller_epoch) == (1, 2)
            [full] = [
                order
                for order in cluster.channel.twin(0).orders
                if isinstance(order, UpdateMetadataRequest) and order.controller_epoch == 2
            ]
            assert full.is_full
            assert full.controller_id == 1
            await other.close()

    tell(scenario, 0, 1)


def test_a_controller_whose_node_is_deleted_begins_anew_with_the_next_epoch() -> None:
    """KAFKA-5310: what it knew is read again, not remembered."""

    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="t"))
            session = await cluster.store.open_session()
            await session.delete("/controller")
            await settled()
            await controller.wait_ready()
            state = controller.find_state()
            assert state is not None
            assert state.controller_epoch == 2
            assert list(state.topics) == ["t"]

    tell(scenario)


def test_a_controller_that_was_replaced_unawares_writes_nothing() -> None:
    """KAFKA-6082: its first write finds the epoch of another, and it is no controller any more."""

    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            session = await cluster.store.open_session()
            await session.set("/controller_epoch", b"41")
            assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NOT_CONTROLLER]
            assert cluster.store.tree.children("/brokers/topics") == ()
            await controller.wait_ready()
            assert controller.statistics().epoch == 42
            assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NONE]

    tell(scenario)


def test_a_controller_that_a_broker_has_seen_replaced_stands_for_election_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            cluster.channel.refusals[BrokerId(0)] = Refusal(ErrorCode.STALE_CONTROLLER_EPOCH)
            await create(controller, CreatableTopic(name="t"))
            await settled()
            await controller.wait_ready()
            assert controller.statistics().epoch == 2
            assert list(cluster.channel.twin().topics) == ["t"]

    tell(scenario)


def test_a_controller_that_is_closed_has_left_its_place() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="t"))
            await controller.close()
            assert cluster.store.tree.find("/controller") is None
            assert await create(controller, CreatableTopic(name="u")) == [ErrorCode.NOT_CONTROLLER]
            assert controller.find_state() is None

    tell(scenario)


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_a_controller_can_be_closed_at_any_moment_of_its_start(turns: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller()
        running = asyncio.create_task(controller.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        await controller.close()
        await running
        assert cluster.store.tree.find("/controller") is None

    tell(scenario)


def test_the_end_of_its_session_ends_the_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller()
        running = asyncio.create_task(controller.run())
        await controller.wait_ready()
        await cluster.store.expire(cluster.sessions[0].id)
        with pytest.raises(SessionExpired):
            await running
        assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NOT_CONTROLLER]

    tell(scenario)


def test_a_tree_that_takes_nothing_any_more_ends_the_controller() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        async with opened(disk) as cluster:
            controller = cluster.controller()
            running = asyncio.create_task(controller.run())
            await controller.wait_ready()
            disk.fail_path("/data/tree/journal", EIO, {OperationKind.SYNC})
            assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NOT_CONTROLLER]
            with pytest.raises(ConnectionLoss):
                await running
            disk.heal()

    asyncio.run(scenario())


def test_orders_are_counted_on_where_a_controller_leads_on_with_the_same_epoch() -> None:
    """Brokers would take the first ones for copies of old ones, and know nothing new for ever."""

    async def scenario(cluster: Cluster) -> None:
        session = CutSession(cluster.sessions[0])
        controller = cluster.controller(session=session)
        running = asyncio.create_task(controller.run())
        await controller.wait_ready()
        session.is_cut = True
        assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NOT_CONTROLLER]
        with pytest.raises(ConnectionLoss):
            await running
        running = asyncio.create_task(controller.run())
        await controller.wait_ready()
        assert await create(controller, CreatableTopic(name="late")) == [ErrorCode.NONE]
        await controller.close()
        await running
        orders = [
            (request.body.controller_epoch, request.number) for request in cluster.channel.sent
        ]
        assert orders == sorted(set(orders))
        assert len({epoch for epoch, _ in orders}) == 1

    tell(scenario)


def test_a_mistake_of_a_channel_ends_the_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller()
        running = asyncio.create_task(controller.run())
        await controller.wait_ready()
        cluster.channel.refusals[BrokerId(0)] = ValueError("a bug")
        await create(controller, CreatableTopic(name="t"))
        with pytest.raises(ValueError, match="a bug"):
            await running

    tell(scenario)


# The queue.


def test_the_queue_is_bounded_and_who_does_not_get_in_in_time_is_told() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = GatedSession(cluster.sessions[0])
        async with cluster.controlled(session=session) as controller:
            gate = session.gate = asyncio.Event()
            waiting = [
                asyncio.create_task(create(controller, CreatableTopic(name=f"t{number}")))
                for number in range(MAX_QUEUED_REQUESTS)
            ]
            await settled()
            assert controller.statistics().queued_requests == MAX_QUEUED_REQUESTS - 1
            late = await create(controller, CreatableTopic(name="late"), timeout_ms=SOON_MS)
            assert late == [ErrorCode.REQUEST_TIMED_OUT]
            gate.set()
            assert [codes for codes in await asyncio.gather(*waiting) if codes != [0]] == []
            state = controller.find_state()
            assert state is not None
            assert len(state.topics) == MAX_QUEUED_REQUESTS
            assert "late" not in state.topics

    tell(scenario)


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = GatedSession(cluster.sessions[0])
        async with cluster.controlled(session=session) as controller:
            gate = session.gate = asyncio.Event()
            first = asyncio.create_task(create(controller, CreatableTopic(name="first")))
            given_up = asyncio.create_task(create(controller, CreatableTopic(name="given-up")))
            await settled()
            given_up.cancel()
            with suppress(asyncio.CancelledError):
                await given_up
            gate.set()
            assert await first == [ErrorCode.NONE]
            assert await create(controller, CreatableTopic(name="last")) == [ErrorCode.NONE]
            assert list(cluster.channel.twin().topics) == ["first", "last"]

    tell(scenario)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_at_all_is_too_little(timeout_ms: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            codes = await create(controller, CreatableTopic(name="t"), timeout_ms=timeout_ms)
            assert codes == [ErrorCode.REQUEST_TIMED_OUT]

    tell(scenario)


def test_the_figures_are_those_of_the_cluster() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (0,), (1,)), CreatableTopic(name="u"))
            await cluster.leave(1)
            await settled()
            found = controller.statistics()
            assert (found.is_active, found.epoch, found.brokers) == (True, 1, 1)
            assert (found.topics, found.partitions, found.deleting_topics) == (2, 3, 0)
            assert found.leaderless_partitions >= 1

    tell(scenario, 0, 1)


def test_refusals_say_why() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            [answer] = await controller.delete_topics(["none"], timeout_ms=WAIT_MS)
            assert isinstance(answer, ApiError)
            assert answer.message == "topic 'none' does not exist"

    tell(scenario)
