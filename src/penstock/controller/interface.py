"""The requests that a controller serves, and their results; no behaviour.

API handlers call `Administration`. The controller in this process implements it, and so does the
client that forwards to the active controller. Results are in the order of the requests: each is a
value or an ApiError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from penstock.model.admin import ConfigOperation, ElectionType
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
    """-1 for `partitions` or `replication_factor` means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)  # empty: assigned
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    name: str
    total: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None  # of the new ones; None: assigned


class ConfigScope(Enum):
    TOPIC = "topic"  # name: the topic
    BROKER = "broker"  # name: the broker's id, or "" for every broker
    GROUP = "group"  # name: the consumer group


class ConfigEntryChange(NamedTuple):
    name: str
    kind: ConfigOperation
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResourceChange:
    """`replace`: configs of the resource that are not set here are removed (AlterConfigs)."""

    scope: ConfigScope
    name: str
    changes: tuple[ConfigEntryChange, ...]
    replace: bool = False


class Reassignment(NamedTuple):
    """A partition's target replicas; None cancels the reassignment in progress."""

    tp: TopicPartition
    replicas: tuple[BrokerId, ...] | None


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
        election: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int,
    ) -> dict[TopicPartition, ApiError | None] | ApiError:
        """None: every partition that needs an election, and only those have a result."""

    async def alter_reassignments(
        self,
        reassignments: Sequence[Reassignment],
        *,
        allow_replication_factor_change: bool,
        timeout_ms: int,
    ) -> list[ApiError | None]: ...

    async def list_reassignments(self) -> Mapping[TopicPartition, PartitionState] | ApiError:
        """The partitions with a reassignment in progress."""


class Membership(Protocol):
    """Requests that brokers send on their own behalf. Refusal if this broker is not the active
    controller, or if the sender's broker epoch is stale."""

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
        """Move leadership off the broker; returns the partitions that it still leads."""

    async def fail_replicas(
        self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        timeout_ms: int,
    ) -> None:
        """The broker's logs of these partitions have failed: elect other leaders and take it out of
        their ISRs."""

    async def replace_damaged_leaders(
        self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        timeout_ms: int,
    ) -> None:
        """The broker leads these partitions with a damaged log: elect other leaders from the ISRs
        and take it out of them, where that is possible."""


class ControllerChannel(Protocol):
    """Sends controller requests to a broker, in process or over the network."""

    async def send(self, node: BrokerNode, request: ControllerRequest) -> None:
        """Returns when the broker has applied it. ConnectionError if the broker is unreachable,
        Refusal if the broker epoch or the controller epoch is stale."""
