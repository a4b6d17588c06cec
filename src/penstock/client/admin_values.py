"""Plain values that admin requests take and return."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.client.metadata import BrokerMetadata
from penstock.model.admin import ConfigOperation
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopicSpec:
    name: str
    partitions: int = -1  # -1: the cluster's default
    replication_factor: int = -1
    assignment: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    name: str
    topic_id: TopicId | None
    partitions: int  # -1: an old broker, which does not return it
    replication_factor: int


class ResourceKind(enum.IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8  # the log levels of a broker (KIP-412)
    GROUP = 32


class Resource(NamedTuple):
    kind: ResourceKind
    name: str  # a broker's id; empty: the configs of all brokers


class DescribedConfigSource(enum.IntEnum):
    """Where a config value comes from, the most specific source first."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: DescribedConfigSource


class DescribedConfig(NamedTuple):
    name: str
    value: str | None  # also None if the setting is sensitive
    source: DescribedConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_own(self) -> bool:
        """Set on the topic itself, not inherited."""
        return self.source is DescribedConfigSource.TOPIC


class AlterConfigOp(NamedTuple):
    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class ReplicaSize(NamedTuple):
    size_bytes: int
    offset_lag: int
    is_future: bool  # being moved here from another directory


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    path: str
    error: ErrorCode
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int = -1  # -1: unknown
    usable_bytes: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str | None
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerMetadata]
