"""Committed offsets survive a restart and a kill, in the offsets topic and in ZooKeeper."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.errors import OutOfTime
from penstock.client.group_values import CommittedOffset
from penstock.model.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def committed(offset: int, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(offset=offset, metadata=metadata)


async def fetch(client: ClusterClient, group: str) -> dict[TopicPartition, int]:
    return {
        tp: offset_and_metadata.offset
        for tp, offset_and_metadata in (await client.groups.fetch_offsets(group)).items()
    }


@pytest.mark.parametrize("storage", ["kafka", "zookeeper"])
def test_offsets_survive_a_restart_and_a_kill(tmp_path: Path, storage: str) -> None:
    broker = penstock.Broker(data=tmp_path, config={"offsets.storage": storage}).start()

    async def scenario() -> None:
        async with ClusterClient(broker.bootstrap_servers) as client:
            groups = client.groups
            await groups.commit_offsets("g", {T0: committed(5, "note"), T1: committed(6)})
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(broker.start)
            assert await fetch(client, "g") == {T0: 5, T1: 6}
            await groups.commit_offsets("g", {T0: committed(7)})
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            assert await fetch(client, "g") == {T0: 7, T1: 6}
            await groups.delete("g")
            assert await fetch(client, "g") == {}

    try:
        broker.create_topic("t", partitions=2)
        run(scenario())
    finally:
        broker.stop()


@pytest.mark.parametrize("storage", ["kafka", "zookeeper"])
def test_a_recreated_topic_has_no_offsets(storage: str) -> None:
    with penstock.Broker(config={"offsets.storage": storage}) as broker:
        broker.create_topic("t", partitions=1)
        broker.create_topic("u", partitions=1)

        async def scenario() -> None:
            async with ClusterClient(broker.bootstrap_servers) as client:
                await client.groups.commit_offsets("g", {T0: committed(5), U0: committed(6)})
                await client.admin.delete_topics(["t"])
                offsets = await fetch(client, "g")
                while T0 in offsets:
                    offsets = await fetch(client, "g")
                assert offsets == {U0: 6}
                with pytest.raises(OutOfTime, match="UNKNOWN_TOPIC_OR_PARTITION"):
                    await client.groups.commit_offsets("g", {T0: committed(1)}, timeout_ms=2_000)
                await asyncio.to_thread(broker.create_topic, "t", partitions=1)
                assert await fetch(client, "g") == {U0: 6}

        run(scenario())


def test_many_groups_are_loaded_from_compressed_records(tmp_path: Path) -> None:
    config = {"offsets.topic.compression.codec": 4, "offsets.topic.num.partitions": 3}
    broker = penstock.Broker(data=tmp_path, config=config).start()

    async def scenario() -> None:
        async with ClusterClient(broker.bootstrap_servers) as client:
            for number in range(100):
                await client.groups.commit_offsets(f"g{number}", {T0: committed(number)})
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            for number in range(100):
                assert await fetch(client, f"g{number}") == {T0: number}
            assert len(await client.groups.list_groups()) == 100

    try:
        broker.create_topic("t", partitions=1)
        run(scenario())
    finally:
        broker.stop()
    assert len(list(tmp_path.glob("__consumer_offsets-*"))) == 3
