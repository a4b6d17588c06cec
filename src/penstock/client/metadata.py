"""A client's view of the cluster: brokers, topics and partition leaders, as plain values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.client.address import Address
from penstock.client.call import Call
from penstock.client.errors import RefusedByBroker
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.errors import ErrorCode, find_error
from penstock.model.ids import LeaderEpoch, TopicId
from penstock.protocol.api_keys import ApiKey


class BrokerMetadata(NamedTuple):
    id: BrokerId
    address: Address
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    partition: int
    leader: BrokerId  # NO_BROKER: none at the moment
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    name: str
    topic_id: TopicId | None  # None: an old broker without topic ids
    is_internal: bool
    error: ErrorCode
    partitions: tuple[PartitionMetadata, ...]  # by number, without gaps

    @property
    def exists(self) -> bool:
        return self.error is ErrorCode.NONE

    def check(self) -> None:
        """Raise RefusedByBroker unless the topic exists."""
        error = self.find_error()
        if error is not None:
            raise error

    def find_error(self) -> RefusedByBroker | None:
        """None: the topic exists."""
        if self.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            advice = f"it does not exist; `penstock topic create {self.name}` creates it"
            return RefusedByBroker(f"topic {self.name!r}", self.error, advice)
        return None if self.exists else RefusedByBroker(f"topic {self.name!r}", self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerMetadata] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)

    def find_partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        topic_metadata = self.topics.get(topic)
        if topic_metadata is None or not 0 <= partition < len(topic_metadata.partitions):
            return None
        return topic_metadata.partitions[partition]

    def find_leader(self, topic: str, partition: int) -> BrokerMetadata | None:
        partition_metadata = self.find_partition(topic, partition)
        return None if partition_metadata is None else self.brokers.get(partition_metadata.leader)

    def find_topic_id(self, topic: str) -> TopicId | None:
        topic_metadata = self.topics.get(topic)
        return None if topic_metadata is None else topic_metadata.topic_id


def metadata_call(topics: Iterable[str] | None, *, allow_auto_creation: bool = False) -> Call:
    """None requests every topic, an empty list none. From version 4 on, so that a metadata request
    does not create topics by accident."""
    wanted = None if topics is None else [{"name": name, "topic_id": None} for name in topics]
    fields = {"topics": wanted, "allow_auto_topic_creation": allow_auto_creation}
    return Call(ApiKey.METADATA, range(4, 13), fields)


def read_metadata(answer: Any) -> ClusterMetadata:
    brokers = {
        BrokerId(broker.node_id): BrokerMetadata(
            BrokerId(broker.node_id), Address(broker.host, broker.port), broker.rack
        )
        for broker in answer.brokers
    }
    return ClusterMetadata(
        cluster_id=answer.cluster_id,
        controller_id=BrokerId(answer.controller_id),
        brokers=brokers,
        topics={
            topic.name: _read_topic(topic) for topic in answer.topics if topic.name is not None
        },
    )


def merge_topics(
    current: Mapping[str, TopicMetadata], news: Mapping[str, TopicMetadata]
) -> dict[str, TopicMetadata]:
    """Newer metadata wins; a topic that is reported missing is dropped."""
    merged = {**current, **news}
    return {name: topic for name, topic in merged.items() if topic.exists}


def read_error(code: Any) -> ErrorCode:
    """Codes of newer brokers were mapped to UNKNOWN_SERVER_ERROR already."""
    error = find_error(int(code))
    return ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error


def _read_topic(topic: Any) -> TopicMetadata:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    # Partition n is found at index n: partitions behind a gap are treated as unknown.
    whole = [
        partition
        for index, partition in enumerate(partitions)
        if partition.partition_index == index
    ]
    return TopicMetadata(
        name=topic.name,
        topic_id=getattr(topic, "topic_id", None),
        is_internal=topic.is_internal,
        error=read_error(topic.error_code),
        partitions=tuple(_read_partition(partition) for partition in whole),
    )


def _read_partition(partition: Any) -> PartitionMetadata:
    return PartitionMetadata(
        partition=partition.partition_index,
        leader=BrokerId(partition.leader_id),
        leader_epoch=LeaderEpoch(getattr(partition, "leader_epoch", -1)),
        replicas=partition.replica_nodes,
        in_sync=partition.isr_nodes,
        offline=getattr(partition, "offline_replicas", ()),
        error=read_error(partition.error_code),
    )
