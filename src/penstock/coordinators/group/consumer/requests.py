"""Requests to consumer groups (KIP-848) and their replies, as plain values.

Handlers convert ConsumerGroupHeartbeat and ConsumerGroupDescribe of any version to and from these.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from penstock.coordinators.group.records import TopicPartitions
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # a static member leaves and will be back under its instance id


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """None: the field has not changed since the member's last heartbeat."""

    group: str
    member: str  # may be empty in version 0 when joining; since version 1 the client generates it
    member_epoch: int  # or JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
    client_id: str
    client_host: str
    instance: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int | None = None  # on the wire: -1
    topics: tuple[str, ...] | None = None
    topic_regex: str | None = None  # version 1; an empty one removes the pattern
    assignor: str | None = None
    owned: tuple[TopicPartitions, ...] | None = None
    requires_member: bool = True  # since version 1 an empty member id is INVALID_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReply:
    error: ErrorCode
    message: str | None = None
    member: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicPartitions, ...] | None = None  # None: unchanged
    # With GROUP_MAX_SIZE_REACHED: the setting whose limit is reached, for the log.
    limit: str | None = field(default=None, compare=False)


class NamedPartitions(NamedTuple):
    topic_id: TopicId
    topic: str
    partitions: tuple[int, ...]


class MemberKind(IntEnum):
    """The kinds of members, as in ConsumerGroupDescribe version 1."""

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
