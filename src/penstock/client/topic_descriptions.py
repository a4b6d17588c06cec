"""Describes topics: their partitions, the offsets of every replica, and their own configs.

Gathered from Kafka's requests and, of Penstock's brokers, from each replica. Offsets of a partition
or replica that does not answer are None; the others are there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.client.admin_values import ConfigResource
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST
from penstock.client.errors import ClientError, ItemsFailed
from penstock.client.metadata import PartitionMetadata, TopicMetadata
from penstock.client.replica_descriptions import (
    Answers,
    ReplicaDescription,
    describe_replicas,
)
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.ids import TopicId, TopicPartition

_TIMEOUT_MS = 5_000  # of each request: a leader that does not answer is shown as such
_REPLICA_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """Offsets are the leader's; None: not known, or not asked for."""

    partition: int
    leader: BrokerId | None
    leader_epoch: int
    replicas: tuple[ReplicaDescription, ...]  # the preferred leader first
    in_sync: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]
    log_start_offset: int | None
    high_watermark: int | None  # consumers read up to it
    log_end_offset: int | None
    size_bytes: int | None

    @property
    def has_followers(self) -> bool:
        """Whether the replicas tell more than the partition does."""
        return len(self.replicas) > 1 and any(replica.has_answered for replica in self.replicas)

    def as_json(self) -> dict[str, object]:
        return {
            "partition": self.partition,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "replicas": [replica.as_json() for replica in self.replicas],
            "isr": list(self.in_sync),
            "offline": list(self.offline),
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log_end_offset,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: TopicId | None  # None: an old broker without topic ids
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str | None]  # set on the topic itself

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "topic_id": None if self.topic_id is None else str(self.topic_id),
            "internal": self.is_internal,
            "partitions": [partition.as_json() for partition in self.partitions],
            "configs": dict(self.configs),
        }


async def describe_topics(
    client: ClusterClient, topics: Collection[TopicMetadata], *, with_offsets: bool = True
) -> dict[str, TopicDescription]:
    """All of them together, with few requests to each broker."""
    configs = await _own_configs(client, topics)
    offsets = await _ask_offsets(client, topics) if with_offsets else _Offsets()
    return {
        topic.name: TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=tuple(
                _describe(TopicPartition(topic.name, metadata.partition), metadata, offsets)
                for metadata in topic.partitions
            ),
            configs=configs.get(topic.name, {}),
        )
        for topic in topics
    }


class _Offsets:
    """What the brokers answered, by partition; what they did not answer is missing."""

    def __init__(self) -> None:
        self.starts: Mapping[TopicPartition, int] = {}
        self.high_watermarks: Mapping[TopicPartition, int] = {}
        self.ends: Mapping[TopicPartition, int] = {}
        self.sizes: dict[TopicPartition, int] = {}
        self.replicas: Answers = {}


def _describe(
    tp: TopicPartition, metadata: PartitionMetadata, offsets: _Offsets
) -> PartitionDescription:
    return PartitionDescription(
        partition=metadata.partition,
        leader=None if metadata.leader == NO_BROKER else metadata.leader,
        leader_epoch=metadata.leader_epoch,
        replicas=tuple(describe_replicas(tp, metadata, offsets.replicas)),
        in_sync=metadata.in_sync,
        offline=metadata.offline,
        log_start_offset=offsets.starts.get(tp),
        high_watermark=offsets.high_watermarks.get(tp),
        log_end_offset=offsets.ends.get(tp),
        size_bytes=offsets.sizes.get(tp),
    )


async def _ask_offsets(client: ClusterClient, topics: Collection[TopicMetadata]) -> _Offsets:
    """In this order, so that under writes no high watermark exceeds its log end offset."""
    leaders = {
        TopicPartition(topic.name, metadata.partition): metadata.leader
        for topic in topics
        for metadata in topic.partitions
        if metadata.leader != NO_BROKER
    }
    offsets = _Offsets()
    offsets.starts = await _list_offsets(client, leaders, EARLIEST)
    answering = offsets.starts.keys()
    offsets.high_watermarks = await _list_offsets(client, answering, LATEST)
    offsets.ends = await _log_ends(client, answering)
    offsets.sizes = await _sizes(client, {tp: leaders[tp] for tp in answering})
    offsets.replicas = await client.replicas.describe(
        _by_broker(topics), timeout_ms=_REPLICA_TIMEOUT_MS
    )
    return offsets


def _by_broker(topics: Collection[TopicMetadata]) -> dict[BrokerId, list[TopicPartition]]:
    partitions: dict[BrokerId, list[TopicPartition]] = {}
    for topic in topics:
        for metadata in topic.partitions:
            for broker in metadata.replicas:
                tp = TopicPartition(topic.name, metadata.partition)
                partitions.setdefault(BrokerId(broker), []).append(tp)
    return partitions


async def _list_offsets(
    client: ClusterClient, partitions: Collection[TopicPartition], time: int
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    try:
        listed = await client.settle_offsets(
            dict.fromkeys(partitions, time), timeout_ms=_TIMEOUT_MS
        )
    except ClientError:
        return {}
    return {
        tp: answer.offset for tp, answer in listed.items() if not isinstance(answer, ClientError)
    }


async def _log_ends(
    client: ClusterClient, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    try:
        ends = await client.log_end_offsets(partitions, timeout_ms=_TIMEOUT_MS)
    except ClientError:
        return {}
    return {tp: end for tp, end in ends.items() if not isinstance(end, ClientError)}


async def _sizes(
    client: ClusterClient, leaders: Mapping[TopicPartition, BrokerId]
) -> dict[TopicPartition, int]:
    """Of the leaders' logs."""
    if not leaders:
        return {}
    try:
        directories = await client.admin.describe_log_dirs(
            brokers=set(leaders.values()), partitions=leaders, timeout_ms=_TIMEOUT_MS
        )
    except ItemsFailed as failed:
        directories = failed.results
    except ClientError:
        return {}  # the caller may not describe log dirs
    return {
        tp: replica.size_bytes
        for broker_id, log_dirs in directories.items()
        for directory in log_dirs
        for tp, replica in directory.replicas.items()
        if leaders.get(tp) == broker_id and not replica.is_future
    }


async def _own_configs(
    client: ClusterClient, topics: Collection[TopicMetadata]
) -> dict[str, dict[str, str | None]]:
    resources: Sequence[ConfigResource] = [ConfigResource.topic(topic.name) for topic in topics]
    if not resources:
        return {}
    described = await client.admin.describe_configs(resources)
    return {
        resource.name: {
            entry.name: entry.value
            for entry in sorted(entries, key=lambda entry: entry.name)
            if entry.is_own
        }
        for resource, entries in described.items()
    }
