"""What clients ask of a group coordinator and what it answers, as plain values.

Handlers turn messages of any version into these and back. An error is an ErrorCode; NONE is done.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition

NO_GENERATION = -1
UNKNOWN_MEMBER = ""

# The classic protocol: join, sync, heartbeat, leave.


class MemberProtocol(NamedTuple):
    """A way to assign that a member offers, with what its assignor wants to know of the member."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    group: str
    member: str  # UNKNOWN_MEMBER: give me an id
    instance: str | None  # static membership (KIP-345)
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    requires_known_member: bool  # v4+: an unknown member gets MEMBER_ID_REQUIRED first (KIP-394)
    supports_skipping_assignment: bool = False  # v9+ (KIP-814)
    reason: str | None = None


class JoinGroupMember(NamedTuple):
    member: str
    instance: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupReply:
    error: ErrorCode
    member: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinGroupMember, ...] = ()  # for the leader only


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    group: str
    member: str
    instance: str | None
    generation: int
    protocol_type: str | None  # None: an older client does not say
    protocol: str | None
    assignments: Mapping[str, bytes] = field(default_factory=dict)  # of the leader


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupReply:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    group: str
    member: str
    instance: str | None
    generation: int


class LeavingMember(NamedTuple):
    member: str
    instance: str | None
    reason: str | None = None


class LeaveResult(NamedTuple):
    member: str
    instance: str | None
    error: ErrorCode


# Committed offsets.


class OffsetCommit(NamedTuple):
    partition: TopicPartition
    offset: int
    leader_epoch: int  # -1: not known
    metadata: str
    topic_id: TopicId | None = None
    timestamp_ms: int | None = None  # None: now
    expires_ms: int | None = None  # of requests before v5 that ask for a retention


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    group: str
    member: str  # with NO_GENERATION and UNKNOWN_MEMBER: a group without members may be used so
    instance: str | None
    generation: int  # or member epoch
    offsets: tuple[OffsetCommit, ...]
    is_consumer_protocol: bool = False  # the request's version knows STALE_MEMBER_EPOCH (v9+)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInTransaction:
    """Offsets that count once their producer's transaction has committed (KIP-98)."""

    producer_id: int
    producer_epoch: int
    commit: CommitOffsets
    # NONE while the transaction may be written to; asked in the same turn as the write.
    find_refusal: Callable[[], ErrorCode]


class FetchedOffset(NamedTuple):
    partition: TopicPartition
    offset: int  # -1: none
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    group: str
    member: str | None  # None: the request does not say (before v9)
    member_epoch: int
    partitions: tuple[TopicPartition, ...] | None  # None: all there are
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffsets:
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()
    unstable: frozenset[TopicPartition] = frozenset()  # an open transaction commits to them


# Looking and deleting.


class GroupListing(NamedTuple):
    group: str
    protocol_type: str
    state: str
    kind: str  # "classic" or "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    member: str
    instance: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    group: str
    error: ErrorCode
    message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
