"""The controller over the real tree: its answers, what the tree holds, what brokers hear."""

from __future__ import annotations

import asyncio

from tests.unit.controller.cluster import Cluster, code_of, opened, tell

from penstock.controller.interface import (
    NewTopic,
)
from penstock.controller.run import Controller
from penstock.model.cluster import TopicState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing.simulated_disk import SimulatedDisk

WAIT_MS = 30_000


async def create(controller: Controller, *topics: NewTopic) -> list[ErrorCode]:
    answers = await controller.create_topics(topics, validate_only=False, timeout_ms=WAIT_MS)
    return [code_of(answer) for answer in answers]


def test_a_created_topic_is_led_and_known_when_the_answer_comes() -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            [made] = await controller.create_topics(
                [NewTopic(name="orders", partitions=3)], validate_only=False, timeout_ms=WAIT_MS
            )
            assert isinstance(made, TopicState)
            twin = cluster.channel.twin()
            assert twin.topics["orders"] == made
            assert [twin.replicas[TopicPartition("orders", n)].leader for n in range(3)] == [0] * 3

    tell(story)


def test_topics_are_there_again_after_a_restart_and_nothing_is_written_for_them() -> None:
    async def story() -> None:
        disk = SimulatedDisk("/data")
        async with opened(disk) as cluster, cluster.controlled() as controller:
            assert await create(controller, NewTopic(name="orders", partitions=3)) == [0]
            before = cluster.channel.twin().topics
        async with opened(disk) as cluster:
            async with cluster.controlled():
                assert cluster.channel.twin().topics == before
                written = cluster.store.tree.zxid
            assert len(cluster.channel.twin().replicas) == 3
            assert cluster.store.tree.get("/brokers/topics/orders").mzxid < written

    asyncio.run(story())


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.controlled() as controller:
            before = cluster.store.tree.node_count
            await create(controller, NewTopic(name="orders", partitions=3))
            answers = await controller.delete_topics(["orders", "other"], timeout_ms=WAIT_MS)
            assert [code_of(each) for each in answers] == [
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert cluster.store.tree.node_count == before
            twin = cluster.channel.twin()
            assert twin.topics == {}
            assert twin.replicas == {}

    tell(story)
