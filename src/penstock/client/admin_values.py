"""Plain values that admin requests take and return."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from penstock.client.metadata import BrokerMetadata
from penstock.config.setting import NOT_OURS
from penstock.model.admin import ConfigOperation, ConfigResourceType
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition

ConfigValue = str | bool | int | float | Sequence[str]  # sent as text, as in a properties file

# As DescribeConfigs of Penstock's brokers ends the documentation of a setting without effect.
_ACCEPTED, _END = " (accepted, ", ")"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: with a number of partitions and replicas, or with an assignment of
    replicas to brokers, the preferred leader first. None: the cluster's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict, kw_only=True)
    configs: Mapping[str, ConfigValue | None] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    name: str
    topic_id: TopicId | None
    partitions: int | None  # None: an old broker, which does not return it
    replication_factor: int | None


class ConfigResource(NamedTuple):
    """What configs belong to. `ConfigResource.topic("orders")` and its like make one."""

    kind: ConfigResourceType
    name: str  # a broker's id; empty: the defaults of all brokers

    @classmethod
    def topic(cls, name: str) -> Self:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> Self:
        return cls(ConfigResourceType.BROKER, str(broker_id))

    @classmethod
    def all_brokers(cls) -> Self:
        """The defaults of all brokers, which a broker's own configs override."""
        return cls(ConfigResourceType.BROKER, "")

    @classmethod
    def broker_logger(cls, broker_id: int) -> Self:
        """The log levels of a broker's components."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, group: str) -> Self:
        return cls(ConfigResourceType.GROUP, group)

    def __str__(self) -> str:
        kind = self.kind.name.lower().replace("_", " ")
        return f"{kind} {self.name}" if self.name else "all brokers"


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


_OWN_SOURCES = frozenset(
    (DescribedConfigSource.TOPIC, DescribedConfigSource.GROUP, DescribedConfigSource.CLIENT_METRICS)
)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A place where the setting may be set, and its value there."""

    name: str
    value: str | None
    source: DescribedConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None  # also None if the setting is sensitive
    source: DescribedConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()  # the effective one first
    documentation: str | None = None

    @property
    def is_own(self) -> bool:
        """Set on the topic or group itself, not inherited."""
        return self.source in _OWN_SOURCES

    @property
    def is_default(self) -> bool:
        """Set nowhere: Kafka's default."""
        return self.source is DescribedConfigSource.DEFAULT

    @property
    def without_effect(self) -> str | None:
        """Why the setting is accepted and changes nothing, as Penstock's brokers document it; None
        if it takes effect, or was described without documentation."""
        documentation = self.documentation or ""
        if documentation == NOT_OURS:
            return "it is not a setting of this broker"
        _, start, reason = documentation.rpartition(_ACCEPTED)
        return reason.removesuffix(_END) if start and reason.endswith(_END) else None


class AlterConfigOp(NamedTuple):
    """A change of one setting; see `ConfigOperation`."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True)
class ReplicaSize:
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
