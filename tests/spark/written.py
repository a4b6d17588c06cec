"""What a topic holds, read with the client and decoded record by record: no Spark, no Arrow."""

from __future__ import annotations

from tests.spark.topics import ask

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, FetchFrom
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, iter_records


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
        metadata = (await client.metadata([topic])).topics[topic]
        metadata.check()
        partitions = [TopicPartition(topic, each.partition) for each in metadata.partitions]
        ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
        return {
            each.partition: await _read_partition(client, each, ends[each].offset)
            for each in partitions
        }

    return ask(servers, read)


async def _read_partition(
    client: ClusterClient, partition: TopicPartition, end: int
) -> list[memoryview]:
    found: list[memoryview] = []
    offset = 0
    while offset < end:
        (fetched,) = await client.fetch([FetchFrom(partition, Offset(offset))])
        for place, header in iter_headers(fetched.batches):
            found.append(fetched.batches[place : place + header.size])
            offset = header.next_offset
    return found
