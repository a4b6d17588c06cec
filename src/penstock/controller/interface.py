"""What a broker asks of the cluster's controller, wherever that runs, and what it answers.

Handlers call `Administration`; the controller here or, in a cluster, a forwarder to the one that
leads, implements it. Each answer stands at its request's place: a value, or a Refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple, Protocol

from penstock.model.cluster import BrokerId, Order, TopicState
from penstock.model.errors import ErrorCode
from penstock.model.values import dataclass


class Refused(NamedTuple):
    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """`partitions` and `replication_factor` of -1 mean the broker's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)  # else chosen
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    name: str
    total: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None  # of the added ones; else chosen


class ConfigScope(Enum):
    TOPIC = "topic"  # name: the topic
    BROKER = "broker"  # name: the broker's id, or "" for every broker


class ChangeKind(Enum):
    """With IncrementalAlterConfigs' meanings; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class SettingChange(NamedTuple):
    name: str
    kind: ChangeKind
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """`replace`: everything of the resource that is not set here goes (AlterConfigs)."""

    scope: ConfigScope
    name: str
    changes: tuple[SettingChange, ...]
    replace: bool = False


class Administration(Protocol):
    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | Refused]: ...

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int
    ) -> list[Refused | None]: ...

    async def create_partitions(
        self, additions: Sequence[MorePartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[Refused | None]: ...

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> list[Refused | None]: ...


class ProducerIds(Protocol):
    async def next_producer_id(self) -> int:
        """One that no producer of this cluster ever had; blocks of them are kept in the tree."""


class BrokerChannel(Protocol):
    """The way of the controller's orders to a broker: in process, or over the network."""

    async def send(self, broker: BrokerId, order: Order) -> None:
        """Returns when the broker has applied it; ConnectionError where it cannot be reached."""
