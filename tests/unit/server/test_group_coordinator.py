"""The group coordinator on real replicas and metadata: it follows changes of both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import pytest
from tests.unit.replication.harness import ME, OTHER, ReplicationHarness
from tests.unit.server.contexts import broker_context
from tests.unit.server.test_coordinator_log import Administrator

from penstock.config.cached_config import CachedConfig
from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator
from penstock.coordinators.group.dependencies import TopicView
from penstock.coordinators.group.offsets.two_storages import TwoStorageGroupCoordinator
from penstock.coordinators.group.requests import CommitOffsets, FetchOffsets, OffsetCommit
from penstock.metadata_store.errors import NoNode
from penstock.metadata_store.interface import Session
from penstock.model.cluster import (
    OFFSETS_TOPIC,
    BrokerId,
    ControllerEpoch,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.server.group_coordinator import MetadataTopics, build_group_coordinator

NONE = ErrorCode.NONE
GROUP = "g"
T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
OFFSETS_ID = TopicId(UUID(int=99))


class EmptySession:
    """A session with a tree that has no offsets."""

    async def children(self, path: str, watch: object = None) -> tuple[str, ...]:
        raise NoNode(path)

    async def exists(self, path: str, watch: object = None) -> None:
        return None


class Harness:
    coordinator: GroupCoordinator  # set while running

    def __init__(self, **broker: str) -> None:
        overrides = {name.replace("_", "."): text for name, text in broker.items()}
        self.replication = ReplicationHarness(broker=overrides)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Harness"]:
        async with asyncio.TaskGroup() as tasks:
            self.coordinator = self.build(tasks)
            try:
                yield self
            finally:
                self.coordinator.close()

    def build(self, tasks: asyncio.TaskGroup) -> GroupCoordinator:
        return build_group_coordinator(
            broker_context(self.replication, tasks),
            administration=Administrator(self.replication),
            session=cast("Session", EmptySession()),
        )

    def lead(self, leader: BrokerId = ME, epoch: int = 0) -> None:
        """Send LeaderAndIsr first, then UpdateMetadata, as the controller does."""
        self.replication.leader_and_isr(
            OFFSETS, leader=leader, epoch=epoch, replicas=(ME, OTHER), in_sync=(leader,)
        )
        state = PartitionState(leader, LeaderEpoch(epoch), (ME, OTHER), (leader,))
        self.update(topic(OFFSETS_TOPIC, OFFSETS_ID, state))

    def update(self, *topics: TopicState, is_full: bool = False, **more: Any) -> None:
        self.replication.cluster.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(1),
                is_full=is_full,
                topics=topics,
                **more,
            )
        )

    async def commit(self, *partitions: TopicPartition) -> list[ErrorCode]:
        offsets = tuple(OffsetCommit(tp, 5, -1, "") for tp in partitions)
        codes = await self.coordinator.commit(
            CommitOffsets(group=GROUP, member="", instance=None, generation=-1, offsets=offsets)
        )
        return [codes[tp] for tp in partitions]

    async def fetch(self) -> set[TopicPartition]:
        answer = await self.coordinator.fetch(
            FetchOffsets(group=GROUP, member=None, member_epoch=-1, partitions=None)
        )
        assert answer.error is NONE
        return {offset.tp for offset in answer.offsets}


def topic(name: str, topic_id: TopicId, *states: PartitionState) -> TopicState:
    alone = PartitionState(ME, LeaderEpoch(0), (ME,), (ME,))
    return TopicState(name=name, topic_id=topic_id, partitions=states or (alone,))


def numbered(number: int) -> TopicId:
    return TopicId(UUID(int=number))


def test_a_shard_is_served_while_its_partition_is_led_here() -> None:
    async def scenario() -> None:
        async with Harness().running() as harness:
            harness.update(topic("t", numbered(1)))
            assert await harness.commit(T0) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
            harness.lead()
            assert await harness.commit(T0) == [NONE]
            harness.lead(OTHER, epoch=1)
            assert await harness.commit(T0) == [ErrorCode.NOT_COORDINATOR]

    asyncio.run(scenario())


def test_a_coordinator_built_late_takes_partitions_that_are_led_already() -> None:
    async def scenario() -> None:
        harness = Harness()
        harness.update(topic("t", numbered(1)))
        harness.lead()
        async with harness.running():
            assert harness.coordinator.statistics().shards == 1

    asyncio.run(scenario())


def test_offsets_of_a_deleted_topic_are_removed() -> None:
    async def scenario() -> None:
        async with Harness().running() as harness:
            harness.update(topic("t", numbered(1)), topic("u", numbered(2)))
            harness.lead()
            assert await harness.commit(T0, U0) == [NONE, NONE]
            harness.update(topic("u", numbered(2)))  # the topic keeps its id
            assert await harness.fetch() == {T0, U0}
            harness.update(deleted_topics=("t",))
            assert await harness.fetch() == {U0}

    asyncio.run(scenario())


def test_offsets_of_a_recreated_topic_are_removed() -> None:
    async def scenario() -> None:
        async with Harness().running() as harness:
            harness.update(topic("t", numbered(1)), topic("u", numbered(2)))
            harness.lead()
            await harness.commit(T0, U0)
            harness.update(topic("t", numbered(3)))
            assert await harness.fetch() == {U0}
            assert await harness.commit(T0) == [NONE]
            harness.update(topic("t", numbered(3)))
            assert await harness.fetch() == {T0, U0}

    asyncio.run(scenario())


def test_a_full_metadata_update_reveals_deleted_topics() -> None:
    async def scenario() -> None:
        async with Harness().running() as harness:
            harness.update(topic("t", numbered(1)), topic("u", numbered(2)))
            harness.lead()
            await harness.commit(T0, U0)
            state = PartitionState(ME, LeaderEpoch(0), (ME, OTHER), (ME,))
            offsets = topic(OFFSETS_TOPIC, OFFSETS_ID, state)
            harness.update(topic("u", numbered(2)), offsets, is_full=True)
            assert await harness.fetch() == {U0}
            harness.update(topic("u", numbered(2)), offsets, is_full=True)
            assert await harness.fetch() == {U0}

    asyncio.run(scenario())


def test_the_coordinators_topics_are_those_of_the_metadata() -> None:
    async def scenario() -> None:
        async with Harness().running() as harness:
            harness.update(topic("t", numbered(1)))
            harness.lead()
            topics = MetadataTopics(harness.replication.cluster)
            assert topics.find("t") == TopicView(numbered(1), 1)
            assert topics.find("u") is None
            assert topics.find_name(numbered(1)) == "t"
            assert set(topics.all()) == {"t", OFFSETS_TOPIC}

    asyncio.run(scenario())


@pytest.mark.parametrize(("storage", "in_zookeeper"), [("kafka", False), ("zookeeper", True)])
def test_offsets_storage_selects_where_offsets_are_kept(storage: str, in_zookeeper: bool) -> None:
    async def scenario() -> None:
        async with Harness(offsets_storage=storage).running() as harness:
            assert isinstance(harness.coordinator, TwoStorageGroupCoordinator)
            assert harness.coordinator.is_in_zookeeper is in_zookeeper

    asyncio.run(scenario())


def test_a_cached_config_follows_changes() -> None:
    settings = resolve_broker(RawConfig.from_mapping({}, where="test"))
    config = CachedConfig(lambda: settings, GroupConfig.from_broker)
    assert config().offsets_retention_ms == 7 * 86_400_000
    assert config() is config()
    settings = resolve_broker(
        RawConfig.from_mapping({"offsets.retention.minutes": "1"}, where="test")
    )
    assert config().offsets_retention_ms == 60_000
