"""What clients ask of a group of the newer protocol (KIP-848) and what it answers, as plain values.

Handlers turn ConsumerGroupHeartbeat and ConsumerGroupDescribe of any version into these and back.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from penstock.coordinators.group.records import TopicPartitions
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # the static member goes and will be back under the same instance id


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A field that is None has not changed since the member's last heartbeat."""

    group: str
    member: str  # version 0 may leave it empty when joining; from version 1 the client makes it
    member_epoch: int  # or JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
    client_id: str
    client_host: str
    instance: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int | None = None  # on the wire: -1
    topics: tuple[str, ...] | None = None
    topic_regex: str | None = None  # version 1; an empty one takes the subscription back
    assignor: str | None = None
    owned: tuple[TopicPartitions, ...] | None = None
    requires_member: bool = True  # version 1 and above: an empty member id is INVALID_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReply:
    error: ErrorCode
    message: str | None = None
    member: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicPartitions, ...] | None = None  # None: as the member knows it


class NamedPartitions(NamedTuple):
    topic_id: TopicId
    topic: str
    partitions: tuple[int, ...]


class MemberKind(IntEnum):
    """As ConsumerGroupDescribe version 1 says it."""

    UNKNOWN = -1
    CLASSIC = 0
    CONSUMER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerMember:
    member: str
    instance: str | None
    rack: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    topic_regex: str | None
    assignment: tuple[NamedPartitions, ...]
    target: tuple[NamedPartitions, ...]
    kind: MemberKind = MemberKind.CONSUMER


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    group: str
    error: ErrorCode
    message: str | None = None
    state: str = ""  # Empty, Assigning, Reconciling, Stable or Dead
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumerMember, ...] = ()
