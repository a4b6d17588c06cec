"""The controller on a real metadata store: its responses, znodes and requests to brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from errno import EIO

import pytest
from tests.unit.controller.cluster import (
    Cluster,
    code_of,
    opened,
    run_scenario,
    same_state,
    settled,
)
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
from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import LINES_PER_PEER
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.metadata_store.interface import Operation, Result
from penstock.model.admin import ConfigOperation, ElectionType
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
SOON_MS = 60  # for tests that wait for the timeout itself


async def create(
    controller: Controller, *topics: CreatableTopic, timeout_ms: int = WAIT_MS
) -> list[ErrorCode]:
    results = await controller.create_topics(topics, validate_only=False, timeout_ms=timeout_ms)
    return [code_of(answer) for answer in results]


async def delete(controller: Controller, *names: str, timeout_ms: int = WAIT_MS) -> list[ErrorCode]:
    results = await controller.delete_topics(names, timeout_ms=timeout_ms)
    return [code_of(answer) for answer in results]


def replicated(name: str, *replicas: tuple[int, ...]) -> CreatableTopic:
    assignment = {n: tuple(map(BrokerId, brokers)) for n, brokers in enumerate(replicas)}
    return CreatableTopic(name=name, assignment=assignment)


def setting(scope: ConfigScope, name: str, key: str, text: str) -> ConfigResourceChange:
    return ConfigResourceChange(
        scope=scope, name=name, changes=(ConfigEntryChange(key, ConfigOperation.SET, text),)
    )


class GatedSession(CrashingSession):
    """A session whose transactions wait until the gate is open."""

    gate: asyncio.Event | None = None

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        if self.gate is not None:
            await self.gate.wait()
        return await super().multi(operations)


class CutSession(CrashingSession):
    """A session whose connection is lost in the next transaction, once it is cut."""

    is_cut = False

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        if self.is_cut:
            self.is_cut = False
            raise ConnectionLoss("nobody knows")
        return await super().multi(operations)


# Topics.


def test_a_created_topic_has_leaders_and_metadata_before_the_response() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            [made] = await controller.create_topics(
                [CreatableTopic(name="requests", partitions=3)],
                validate_only=False,
                timeout_ms=WAIT_MS,
            )
            assert isinstance(made, TopicState)
            fake = cluster.channel.broker()
            assert fake.topics["requests"] == made
            assert [fake.replicas[TopicPartition("requests", n)].leader for n in range(3)] == [
                0
            ] * 3

    run_scenario(scenario)


def test_a_restart_sends_the_full_state_and_writes_nothing() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        async with opened(disk) as cluster, cluster.controlled() as controller:
            assert await create(controller, CreatableTopic(name="requests", partitions=3)) == [0]
            before = cluster.channel.broker()
        async with opened(disk) as cluster:
            session = CrashingSession(cluster.sessions[0])
            async with cluster.controlled(session=session):
                assert session.transactions == 1  # the election
                assert cluster.channel.broker().topics == before.topics
                assert cluster.channel.broker().replicas == before.replicas

    asyncio.run(scenario())


def test_validate_only_returns_the_same_and_writes_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="t"))
            zxid, requests = cluster.store.tree.zxid, len(cluster.channel.broker().requests)
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
            assert len(cluster.channel.broker().requests) == requests

    run_scenario(scenario)


def test_a_request_with_many_topics_keeps_its_partition_limit() -> None:
    """The request is decided in steps, but duplicates, collisions and limits span all of them."""

    async def scenario(cluster: Cluster) -> None:
        names = [f"t{number}" for number in range(130)]
        names[0] = names[125] = "twice"
        names[1], names[120] = "x.y", "x_y"
        topics = [CreatableTopic(name=name, partitions=2) for name in names]
        for validate_only in (True, False):
            async with cluster.controlled(max_partitions_per_request=240) as controller:
                results = await controller.create_topics(
                    topics, validate_only=validate_only, timeout_ms=WAIT_MS
                )
                codes = [code_of(answer) for answer in results]
                assert codes[0] == codes[125] == ErrorCode.INVALID_REQUEST
                assert codes[120] == ErrorCode.INVALID_TOPIC_EXCEPTION
                assert codes[1:120] == [0] * 119
                assert codes[121] == ErrorCode.NONE
                assert set(codes[122:125] + codes[126:]) == {ErrorCode.POLICY_VIOLATION}
        assert len(cluster.store.tree.children("/brokers/topics")) == 120

    run_scenario(scenario)


def test_config_changes_reach_the_brokers_before_the_response() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="t"))
            changes = [
                setting(ConfigScope.TOPIC, "t", "retention.ms", "7"),
                setting(ConfigScope.BROKER, "", "log.retention.ms", "8"),
            ]
            assert await controller.alter_configs(changes, validate_only=False) == [None, None]
            fake = cluster.channel.broker()
            assert fake.topics["t"].configs == {"retention.ms": "7"}
            assert fake.broker_configs == {"": {"log.retention.ms": "8"}}

    run_scenario(scenario)


def test_a_broker_config_with_an_unknown_name_survives_a_failover() -> None:
    async def scenario(cluster: Cluster) -> None:
        stored = {"": {"acme.color": "red"}, "1": {"acme.color": "blue"}}
        changes = [
            setting(ConfigScope.BROKER, broker, "acme.color", configs["acme.color"])
            for broker, configs in stored.items()
        ]
        async with cluster.controlled(0) as controller:
            assert await controller.alter_configs(changes, validate_only=False) == [None, None]
        async with cluster.controlled(1) as controller:
            await settled()
            state = controller.find_state()
            assert state is not None
            assert (state.controller_id, state.broker_configs) == (1, stored)
            [full] = [
                request
                for request in cluster.channel.broker(0).requests
                if isinstance(request, UpdateMetadataRequest) and request.controller_epoch == 2
            ]
            assert (full.is_full, full.broker_configs) == (True, stored)
            more = [setting(ConfigScope.BROKER, "", "log.retention.ms", "8")]
            assert await controller.alter_configs(more, validate_only=False) == [None]
        assert cluster.reports == []

    run_scenario(scenario, 0, 1)


# Deletion.


def test_a_deleted_topic_leaves_no_znode_and_can_be_recreated() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            before = cluster.store.tree.node_count
            await create(controller, CreatableTopic(name="requests", partitions=3))
            first = cluster.channel.broker().topics["requests"].topic_id
            codes = await delete(controller, "requests", "other")
            assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert cluster.store.tree.node_count == before
            assert cluster.channel.broker().topics == {}
            assert cluster.channel.broker().replicas == {}
            assert await create(controller, CreatableTopic(name="requests")) == [ErrorCode.NONE]
            assert cluster.channel.broker().topics["requests"].topic_id != first

    run_scenario(scenario)


def test_deletion_is_refused_if_delete_topic_enable_is_false() -> None:
    async def scenario(cluster: Cluster) -> None:
        static = RawConfig.from_mapping({"delete.topic.enable": "false"}, where="file")
        async with cluster.controlled(static=static) as controller:
            await create(controller, CreatableTopic(name="t"))
            assert await delete(controller, "t") == [ErrorCode.TOPIC_DELETION_DISABLED]
            assert list(cluster.channel.broker().topics) == ["t"]

    run_scenario(scenario)


def test_deletion_waits_for_an_offline_broker() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (0, 1)))
            await cluster.leave(1)
            await settled()
            deletion = asyncio.create_task(delete(controller, "t"))
            await settled()
            assert not deletion.done()
            assert cluster.channel.broker(0).topics == {}  # removed from the metadata already
            assert await create(controller, CreatableTopic(name="t")) == [
                ErrorCode.TOPIC_ALREADY_EXISTS
            ]
            again = asyncio.create_task(delete(controller, "t"))  # a second request succeeds
            assert TopicPartition("t", 0) in cluster.channel.broker(1).replicas
            await cluster.join(1)
            assert await deletion == await again == [ErrorCode.NONE]
            assert cluster.channel.broker(1).replicas == {}
            assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NONE]

    run_scenario(scenario, 0, 1)


def test_a_broker_that_fails_during_a_deletion_has_not_confirmed_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (0, 1)))
            cluster.channel.unreachable.add(BrokerId(1))
            deletion = asyncio.create_task(delete(controller, "t"))
            await settled()
            assert list(cluster.channel.broker(0).topics) == ["t"]
            await cluster.leave(1)
            await settled()
            assert not deletion.done()
            assert cluster.channel.broker(0).topics == {}
            assert cluster.store.tree.children("/admin/delete_topics") == ("t",)
            cluster.channel.unreachable.clear()
            await cluster.join(1)
            assert await deletion == [ErrorCode.NONE]
            assert cluster.channel.broker(1).replicas == {}

    run_scenario(scenario, 0, 1)


def test_a_deletion_that_times_out_continues() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (0, 1)))
            cluster.channel.unreachable.add(BrokerId(1))
            codes = await delete(controller, "t", timeout_ms=SOON_MS)
            assert codes == [ErrorCode.REQUEST_TIMED_OUT]
            cluster.channel.unreachable.clear()
            assert await delete(controller, "t") == [ErrorCode.NONE]
            assert cluster.store.tree.children("/brokers/topics") == ()

    run_scenario(scenario, 0, 1)


# Brokers.


def test_broker_failure_elects_leaders_and_updates_all_metadata() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (1, 2), (2, 0)))
            await cluster.leave(1)
            await settled()
            for broker in (0, 2):
                fake = cluster.channel.broker(broker)
                assert [broker.id for broker in fake.brokers] == [0, 2]
                assert [p.leader for p in fake.topics["t"].partitions] == [2, 2]
            assert cluster.channel.broker(2).replicas[TopicPartition("t", 0)].in_sync == (2,)
            fresh = await cluster.reread()
            state = controller.find_state()
            assert state is not None
            assert same_state(fresh.state, state)

    run_scenario(scenario, 0, 1, 2)


def test_a_restarted_broker_leads_partitions_that_only_it_has() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (1,)))
            await cluster.leave(1)
            await settled()
            assert cluster.channel.broker(0).topics["t"].partitions[0].leader == NO_BROKER
            epoch = await cluster.join(1)
            await settled()
            [state] = cluster.channel.broker(0).topics["t"].partitions
            assert (state.leader, state.leader_epoch) == (1, 2)
            last = [
                o for o in cluster.channel.broker(1).requests if isinstance(o, LeaderAndIsrRequest)
            ][-1]
            assert last.broker_epoch == epoch

    run_scenario(scenario, 0, 1)


def test_enabling_unclean_election_elects_a_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (1, 2)), replicated("u", (1, 2)))
            await cluster.leave(2)  # leaves the ISR
            await settled()
            await cluster.join(2)
            await settled()
            await cluster.leave(1)
            await settled()
            fake = cluster.channel.broker(0)
            assert fake.topics["t"].partitions[0].leader == NO_BROKER
            change = setting(ConfigScope.TOPIC, "t", "unclean.leader.election.enable", "true")
            assert await controller.alter_configs([change], validate_only=False) == [None]
            assert fake.topics["t"].partitions[0].leader == 2
            assert fake.topics["u"].partitions[0].leader == NO_BROKER
            change = setting(ConfigScope.BROKER, "", "unclean.leader.election.enable", "true")
            assert await controller.alter_configs([change], validate_only=False) == [None]
            assert fake.topics["u"].partitions[0].leader == 2

    run_scenario(scenario, 0, 1, 2)


def test_config_changes_of_a_client_are_logged_within_a_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        events: list[str] = []
        logger = EventLogger(lambda level, event, message, fields: events.append(event))
        cluster.logger = logger
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="t"), CreatableTopic(name="u"))
            for number in range(LINES_PER_PEER + 5):
                change = setting(ConfigScope.TOPIC, "t", "retention.ms", str(1000 + number))
                assert await controller.alter_configs([change], validate_only=False) == [None]
            assert events.count("config_changed") == LINES_PER_PEER
            change = setting(ConfigScope.TOPIC, "u", "retention.ms", "1000")
            assert await controller.alter_configs([change], validate_only=False) == [None]
            assert events.count("config_changed") == LINES_PER_PEER + 1

    run_scenario(scenario)


def test_an_unreachable_broker_delays_no_other_and_gets_all_requests_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            cluster.channel.unreachable.add(BrokerId(1))
            waiting = asyncio.create_task(create(controller, CreatableTopic(name="t")))
            await settled()
            assert not waiting.done()
            assert list(cluster.channel.broker(0).topics) == ["t"]
            assert cluster.channel.broker(1).topics == {}
            [refused] = await create(controller, CreatableTopic(name="t"))
            assert refused is ErrorCode.TOPIC_ALREADY_EXISTS
            cluster.channel.unreachable.clear()
            assert await waiting == [ErrorCode.NONE]
            assert await create(controller, CreatableTopic(name="u")) == [ErrorCode.NONE]
            assert list(cluster.channel.broker(1).topics) == ["t", "u"]

    run_scenario(scenario, 0, 1)


def test_a_request_waits_for_a_broker_only_while_it_is_registered() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            cluster.channel.unreachable.add(BrokerId(1))
            creation = asyncio.create_task(create(controller, replicated("t", (0,))))
            await settled()
            assert not creation.done()
            await cluster.leave(1)
            assert await creation == [ErrorCode.NONE]

    run_scenario(scenario, 0, 1)


# Failover.


def test_requests_to_an_inactive_controller_get_not_controller() -> None:
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

    run_scenario(scenario, 0, 1)


def test_the_next_controller_loads_the_same_state() -> None:
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
            assert same_state(before, after)
            assert (after.controller_id, after.controller_epoch) == (1, 2)
            [full] = [
                addressed
                for addressed in cluster.channel.broker(0).requests
                if isinstance(addressed, UpdateMetadataRequest) and addressed.controller_epoch == 2
            ]
            assert full.is_full
            assert full.controller_id == 1
            await other.close()

    run_scenario(scenario, 0, 1)


def test_a_controller_whose_znode_is_deleted_is_elected_again_with_the_next_epoch() -> None:
    """KAFKA-5310: the state is read again, not kept from the earlier epoch."""

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

    run_scenario(scenario)


def test_a_deposed_controller_writes_nothing() -> None:
    """KAFKA-6082: its first write finds another controller epoch, and it resigns."""

    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            session = await cluster.store.open_session()
            await session.set("/controller_epoch", b"41")
            assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NOT_CONTROLLER]
            assert cluster.store.tree.children("/brokers/topics") == ()
            await controller.wait_ready()
            assert controller.statistics().epoch == 42
            assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NONE]

    run_scenario(scenario)


def test_a_controller_with_a_stale_epoch_campaigns_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            cluster.channel.refusals[BrokerId(0)] = Refusal(ErrorCode.STALE_CONTROLLER_EPOCH)
            await create(controller, CreatableTopic(name="t"))
            await settled()
            await controller.wait_ready()
            assert controller.statistics().epoch == 2
            assert list(cluster.channel.broker().topics) == ["t"]

    run_scenario(scenario)


def test_a_closed_controller_has_deleted_its_znode() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="t"))
            await controller.close()
            assert cluster.store.tree.find("/controller") is None
            assert await create(controller, CreatableTopic(name="u")) == [ErrorCode.NOT_CONTROLLER]
            assert controller.find_state() is None

    run_scenario(scenario)


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_a_controller_can_be_closed_at_any_point_of_its_start(turns: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller()
        running = asyncio.create_task(controller.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        await controller.close()
        await running
        assert cluster.store.tree.find("/controller") is None

    run_scenario(scenario)


def test_session_expiry_ends_the_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller()
        running = asyncio.create_task(controller.run())
        await controller.wait_ready()
        await cluster.store.expire(cluster.sessions[0].id)
        with pytest.raises(SessionExpired):
            await running
        assert await create(controller, CreatableTopic(name="t")) == [ErrorCode.NOT_CONTROLLER]

    run_scenario(scenario)


def test_a_stopped_metadata_store_ends_the_controller() -> None:
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


def test_request_numbers_continue_if_a_controller_is_reelected_in_the_same_epoch() -> None:
    """Otherwise brokers would ignore the first requests as duplicates."""

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
        requests = [
            (request.body.controller_epoch, request.number) for request in cluster.channel.sent
        ]
        assert requests == sorted(set(requests))
        assert len({epoch for epoch, _ in requests}) == 1

    run_scenario(scenario)


def test_an_unexpected_channel_error_ends_the_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller()
        running = asyncio.create_task(controller.run())
        await controller.wait_ready()
        cluster.channel.refusals[BrokerId(0)] = ValueError("a bug")
        await create(controller, CreatableTopic(name="t"))
        with pytest.raises(ValueError, match="a bug"):
            await running

    run_scenario(scenario)


# The queue.


def test_the_request_queue_is_bounded_and_times_out() -> None:
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

    run_scenario(scenario)


def test_a_request_whose_caller_timed_out_is_executed() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = GatedSession(cluster.sessions[0])
        async with cluster.controlled(session=session) as controller:
            gate = session.gate = asyncio.Event()
            first = asyncio.create_task(create(controller, CreatableTopic(name="first")))
            await settled()
            codes = await create(controller, CreatableTopic(name="late"), timeout_ms=SOON_MS)
            assert codes == [ErrorCode.REQUEST_TIMED_OUT]
            gate.set()
            assert await first == [ErrorCode.NONE]
            assert await create(controller, CreatableTopic(name="last")) == [ErrorCode.NONE]
            assert list(cluster.channel.broker().topics) == ["first", "late", "last"]

    run_scenario(scenario)


def test_a_request_whose_caller_was_cancelled_is_not_started() -> None:
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
            assert list(cluster.channel.broker().topics) == ["first", "last"]

    run_scenario(scenario)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_with_a_zero_timeout_is_executed_and_gets_request_timed_out(
    timeout_ms: int,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, CreatableTopic(name="there"))
            codes = await create(
                controller,
                CreatableTopic(name="t", partitions=1),
                CreatableTopic(name="there"),
                timeout_ms=timeout_ms,
            )
            assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS]
            [added] = await controller.create_partitions(
                [NewPartitions(name="t", total=3)], validate_only=False, timeout_ms=timeout_ms
            )
            assert code_of(added) == ErrorCode.REQUEST_TIMED_OUT
            codes = await delete(controller, "there", timeout_ms=timeout_ms)
            assert codes == [ErrorCode.REQUEST_TIMED_OUT]
            await settled()
            topics = cluster.channel.broker().topics
            assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 3}

    run_scenario(scenario)


def test_a_zero_timeout_does_not_affect_requests_that_change_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            [made] = await controller.create_topics(
                [CreatableTopic(name="t")], validate_only=True, timeout_ms=0
            )
            assert code_of(made) == ErrorCode.NONE
            assert await controller.list_reassignments() == {}

    run_scenario(scenario)


def test_an_election_with_a_zero_timeout_is_executed_and_times_out_per_partition() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (1, 2), (0, 1)))
            for change in (cluster.leave(2), cluster.leave(1), cluster.join(2)):
                await change
                await settled()
            tps = [TopicPartition("t", 0), TopicPartition("t", 1)]
            elected = await controller.elect_leaders(ElectionType.UNCLEAN, tps, timeout_ms=0)
            assert isinstance(elected, dict)
            assert [code_of(elected[tp]) for tp in tps] == [
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.ELECTION_NOT_NEEDED,
            ]
            state = controller.find_state()
            assert state is not None
            assert [partition.leader for partition in state.topics["t"].partitions] == [2, 0]

    run_scenario(scenario, 0, 1, 2)


def test_statistics_show_the_cluster() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            await create(controller, replicated("t", (0,), (1,)), CreatableTopic(name="u"))
            await cluster.leave(1)
            await settled()
            statistics = controller.statistics()
            assert (statistics.is_active, statistics.epoch, statistics.brokers) == (True, 1, 1)
            assert (statistics.topics, statistics.partitions, statistics.deleting_topics) == (
                2,
                3,
                0,
            )
            assert statistics.leaderless_partitions >= 1

    run_scenario(scenario, 0, 1)


def test_refusals_have_messages() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            [answer] = await controller.delete_topics(["none"], timeout_ms=WAIT_MS)
            assert isinstance(answer, ApiError)
            assert answer.message == "topic 'none' does not exist"

    run_scenario(scenario)
