"""What a broker asks of the cluster's controller, wherever that runs, and what it answers.

Handlers call `Administration`; the controller here or, in a cluster, a forwarder to the one that
leads, implements it. Each answer stands at its request's place: a value, or a Refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerRequest,
    PartitionState,
    TopicState,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition


class ApiError(NamedTuple):
    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic:
    """`partitions` and `replication_factor` of -1 mean the broker's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)  # else chosen
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    name: str
    total: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None  # of the added ones; else chosen


class ConfigScope(Enum):
    TOPIC = "topic"  # name: the topic
    BROKER = "broker"  # name: the broker's id, or "" for every broker


class ConfigOperation(Enum):
    """With IncrementalAlterConfigs' meanings; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEntryChange(NamedTuple):
    name: str
    kind: ConfigOperation
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResourceChange:
    """`replace`: everything of the resource that is not set here goes (AlterConfigs)."""

    scope: ConfigScope
    name: str
    changes: tuple[ConfigEntryChange, ...]
    replace: bool = False


class Reassignment(NamedTuple):
    """Where a partition's replicas are to be; None: where they were before a move under way."""

    tp: TopicPartition
    replicas: tuple[BrokerId, ...] | None


class ElectionType(Enum):
    """With ElectLeaders' numbers."""

    PREFERRED = 0
    UNCLEAN = 1  # the first live replica, where none that is in sync is there


class AltersConfigs(Protocol):
    async def alter_configs(
        self, changes: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> list[ApiError | None]: ...


class CreatesTopics(Protocol):
    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | ApiError]: ...


class Administration(CreatesTopics, AltersConfigs, Protocol):
    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int
    ) -> list[ApiError | None]: ...

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[ApiError | None]: ...

    async def elect_leaders(
        self,
        choice: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int,
    ) -> dict[TopicPartition, ApiError | None] | ApiError:
        """None: of all that need it, and only those are answered."""

    async def alter_reassignments(
        self,
        reassignments: Sequence[Reassignment],
        *,
        allow_replication_factor_change: bool,
        timeout_ms: int,
    ) -> list[ApiError | None]: ...

    async def list_reassignments(
        self, *, timeout_ms: int
    ) -> Mapping[TopicPartition, PartitionState] | ApiError:
        """Partitions that are being moved."""


class Membership(Protocol):
    """What brokers ask of the controller for themselves. Refusal where it is not one, or where the
    asker is not the broker of that id any more."""

    async def alter_partition(
        self,
        proposals: Sequence[AlterPartitionProposal],
        *,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        timeout_ms: int,
    ) -> list[AlterPartitionResult]: ...

    async def controlled_shutdown(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, *, timeout_ms: int
    ) -> tuple[TopicPartition, ...]:
        """Move what it leads to others, before it stops; the partitions that it still leads."""

    async def fail_replicas(
        self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        timeout_ms: int,
    ) -> None:
        """Its logs of these take nothing any more: others lead, and are in sync without it."""


class ControllerChannel(Protocol):
    """The way of the controller's orders to a broker: in process, or over the network."""

    async def send(self, node: BrokerNode, request: ControllerRequest) -> None:
        """Returns when the broker has applied it; ConnectionError where it cannot be reached, and
        Refusal where that life of it is over or knows of a newer controller."""
