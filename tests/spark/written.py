"""What a topic shows to readers of committed records, read with the client and decoded record by
record: no Spark, no Arrow."""

from __future__ import annotations

from tests.spark.topics import ask

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, FetchFrom, IsolationLevel
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import read_header
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, iter_records
from penstock.spark.codec.visible_batches import OffsetBounds, visible_batches

_COMMITTED = IsolationLevel.READ_COMMITTED


def read_records(servers: str, topic: str) -> dict[int, list[Record]]:
    """Of each partition, in order."""
    return {
        number: [record for batch in batches for record in iter_records(batch)]
        for number, batches in read_batches(servers, topic).items()
    }


def read_codecs(servers: str, topic: str) -> set[Codec]:
    return {
        Codec(read_header(batch).codec)
        for batches in read_batches(servers, topic).values()
        for batch in batches
    }


def read_batches(servers: str, topic: str) -> dict[int, list[memoryview]]:
    async def read(client: ClusterClient) -> dict[int, list[memoryview]]:
        partitions = await _partitions(client, topic)
        ends = await client.list_offsets(dict.fromkeys(partitions, LATEST), isolation=_COMMITTED)
        return {
            partition.partition: await _read_partition(client, partition, ends[partition].offset)
            for partition in partitions
        }

    return ask(servers, read)


def has_undecided(servers: str, topic: str) -> bool:
    """Something that is neither committed nor aborted, or not yet known to be."""

    async def look(client: ClusterClient) -> bool:
        wanted = dict.fromkeys(await _partitions(client, topic), LATEST)
        all_ends, stable_ends = [
            await client.list_offsets(wanted, isolation=level) for level in IsolationLevel
        ]
        return any(all_ends[tp].offset != stable_ends[tp].offset for tp in wanted)

    return ask(servers, look)


async def _partitions(client: ClusterClient, topic: str) -> list[TopicPartition]:
    metadata = (await client.metadata([topic])).topics[topic]
    metadata.check()
    return [TopicPartition(topic, partition.partition) for partition in metadata.partitions]


async def _read_partition(
    client: ClusterClient, partition: TopicPartition, end: int
) -> list[memoryview]:
    found: list[memoryview] = []
    offset = 0
    while offset < end:
        wanted = FetchFrom(partition, Offset(offset))
        (fetched,) = await client.fetch([wanted], isolation=_COMMITTED)
        visible = visible_batches(
            fetched.batches, OffsetBounds(offset, end), aborted=fetched.aborted, check_crc=True
        )
        found.extend(placed.view(fetched.batches) for placed in visible.batches)
        offset = visible.next_offset
    return found
