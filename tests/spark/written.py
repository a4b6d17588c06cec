"""The committed records of a topic, read with the client and decoded record by record, without
Spark and Arrow."""

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
    """The records of each partition, in order."""
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
            tp.partition: await _read_partition(client, tp, ends[tp].offset) for tp in partitions
        }

    return ask(servers, read)


def has_undecided(servers: str, topic: str) -> bool:
    """Whether a transaction is neither committed nor aborted, or its markers are missing."""

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


async def _read_partition(client: ClusterClient, tp: TopicPartition, end: int) -> list[memoryview]:
    batches: list[memoryview] = []
    offset = 0
    while offset < end:
        wanted = FetchFrom(tp, Offset(offset))
        (fetched,) = await client.fetch([wanted], isolation=_COMMITTED)
        visible = visible_batches(
            fetched.batches, OffsetBounds(offset, end), aborted=fetched.aborted, check_crc=True
        )
        batches.extend(batch.view(fetched.batches) for batch in visible.batches)
        offset = visible.next_offset
    return batches
