"""Gathers what `penstock topic describe` shows, from Kafka's public requests.

Offsets of a partition that cannot answer are None; the others are shown.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from penstock.client.admin_values import DescribedConfig, Resource, ResourceKind
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST, ListedOffset
from penstock.client.errors import ClientError
from penstock.client.metadata import PartitionMetadata, TopicMetadata
from penstock.model.cluster import NO_BROKER
from penstock.model.ids import TopicPartition

_TIMEOUT_MS = 5_000
_Answer = TypeVar("_Answer")
_Ask = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, _Answer]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    metadata: PartitionMetadata
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    size_bytes: int | None  # of the leader's log

    @property
    def leader(self) -> int | None:
        return None if self.metadata.leader == NO_BROKER else self.metadata.leader

    def as_row(self) -> list[object]:
        return [
            self.metadata.partition,
            self.leader,
            self.metadata.leader_epoch,
            ",".join(str(replica) for replica in self.metadata.replicas),
            ",".join(str(broker) for broker in self.metadata.in_sync),
            self.log_start_offset,
            self.high_watermark,
            self.log_end_offset,
            self.size_bytes,
        ]

    def as_json(self) -> dict[str, object]:
        return {
            "partition": self.metadata.partition,
            "leader": self.leader,
            "leader_epoch": self.metadata.leader_epoch,
            "replicas": list(self.metadata.replicas),
            "isr": list(self.metadata.in_sync),
            "offline": list(self.metadata.offline),
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log_end_offset,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: list[PartitionDescription]
    configs: list[DescribedConfig]  # set on the topic itself

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "topic_id": self.topic_id,
            "internal": self.is_internal,
            "partitions": [partition.as_json() for partition in self.partitions],
            "configs": {entry.name: entry.value for entry in self.configs},
        }


async def describe_topic(client: ClusterClient, name: str) -> TopicDescription:
    topic = (await client.metadata([name])).topics[name]
    topic.check()
    return TopicDescription(
        name=name,
        topic_id=None if topic.topic_id is None else str(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=await _describe_partitions(client, topic),
        configs=await _own_configs(client, name),
    )


async def _describe_partitions(
    client: ClusterClient, topic: TopicMetadata
) -> list[PartitionDescription]:
    led = [
        TopicPartition(topic.name, metadata.partition)
        for metadata in topic.partitions
        if metadata.leader != NO_BROKER
    ]
    # In this order, so that under writes no high watermark exceeds its log end offset.
    starts = await _list_offsets(client, led, EARLIEST)
    watermarks = await _list_offsets(client, led, LATEST)
    ends = await _ask_all(led, lambda some: client.log_end_offsets(some, timeout_ms=_TIMEOUT_MS))
    sizes = await _leader_sizes(client, topic)
    described = []
    for partition_metadata in topic.partitions:
        partition = TopicPartition(topic.name, partition_metadata.partition)
        start, watermark = starts.get(partition), watermarks.get(partition)
        described.append(
            PartitionDescription(
                metadata=partition_metadata,
                log_start_offset=None if start is None else start.offset,
                high_watermark=None if watermark is None else watermark.offset,
                log_end_offset=ends.get(partition),
                size_bytes=sizes.get(partition),
            )
        )
    return described


async def _list_offsets(
    client: ClusterClient, partitions: list[TopicPartition], time: int
) -> Mapping[TopicPartition, ListedOffset]:
    return await _ask_all(
        partitions,
        lambda some: client.list_offsets(dict.fromkeys(some, time), timeout_ms=_TIMEOUT_MS),
    )


async def _ask_all(
    partitions: list[TopicPartition], ask: _Ask[_Answer]
) -> Mapping[TopicPartition, _Answer]:
    """Ask for all partitions at once; after a failure ask for each, so that the others are
    shown."""
    try:
        return await ask(partitions)
    except ClientError:
        answers: dict[TopicPartition, _Answer] = {}
        for partition in partitions:
            try:
                answers.update(await ask([partition]))
            except ClientError:
                continue  # shown as unknown
        return answers


async def _leader_sizes(client: ClusterClient, topic: TopicMetadata) -> dict[TopicPartition, int]:
    partitions = {
        TopicPartition(topic.name, metadata.partition): metadata for metadata in topic.partitions
    }
    leaders = {metadata.leader for metadata in topic.partitions if metadata.leader != NO_BROKER}
    try:
        directories = await client.admin.describe_log_dirs(
            brokers=leaders, partitions=partitions, timeout_ms=_TIMEOUT_MS
        )
    except ClientError:
        return {}  # the caller may not describe log dirs
    return {
        partition: replica.size_bytes
        for broker_id, log_dirs in directories.items()
        for directory in log_dirs
        for partition, replica in directory.replicas.items()
        if partitions[partition].leader == broker_id and not replica.is_future
    }


async def _own_configs(client: ClusterClient, name: str) -> list[DescribedConfig]:
    topic = Resource(ResourceKind.TOPIC, name)
    entries = (await client.admin.describe_configs([topic])).get(topic, [])
    return sorted(entry for entry in entries if entry.is_own)
