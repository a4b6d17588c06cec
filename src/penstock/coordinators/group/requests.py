"""Requests to the group coordinator and its replies, as plain values.

Handlers convert messages of any version to and from these. An error is an ErrorCode.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition

NO_GENERATION = -1
UNKNOWN_MEMBER = ""
DEAD = "Dead"  # the state of a group that does not exist

# The classic protocol: join, sync, heartbeat, leave.


class MemberProtocol(NamedTuple):
    """A protocol (assignor) that a member supports, with its metadata for it."""

    name: str
    metadata: bytes


class RequestOrigin(Protocol):
    """The connection that a request came on."""

    @property
    def connection(self) -> int:
        """Its number; no other connection ever has it."""

    def on_close(self, call: Callable[[], None], /) -> None:
        """Call this if it closes before the response."""

    def on_disconnect(self, call: Callable[[], None], /) -> None:
        """Call this when it closes, whether there was a response or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    group: str
    member: str  # UNKNOWN_MEMBER: the coordinator chooses an id
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
    # With GROUP_MAX_SIZE_REACHED: the setting whose limit is reached, for the log.
    limit: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    group: str
    member: str
    instance: str | None
    generation: int
    protocol_type: str | None  # None: an older client does not send it
    protocol: str | None
    assignments: Mapping[str, bytes] = field(default_factory=dict)  # from the leader


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
    tp: TopicPartition
    offset: int
    leader_epoch: int  # -1: unknown
    metadata: str
    topic_id: TopicId | None = None
    timestamp_ms: int | None = None  # None: now
    expires_ms: int | None = None  # before v5 a request may set a retention


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    group: str
    member: str  # with NO_GENERATION and UNKNOWN_MEMBER: a client without group membership
    instance: str | None
    generation: int  # or member epoch
    offsets: tuple[OffsetCommit, ...]
    is_consumer_protocol: bool = False  # the request version has STALE_MEMBER_EPOCH (v9+)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInTransaction:
    """Offsets that take effect when their producer's transaction commits (KIP-98)."""

    producer_id: int
    producer_epoch: int
    commit: CommitOffsets
    # NONE while the transaction accepts writes; called in the same loop iteration as the write.
    find_refusal: Callable[[], ErrorCode]


class FetchedOffset(NamedTuple):
    tp: TopicPartition
    offset: int  # -1: none
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    group: str
    member: str | None  # None: the request has none (before v9)
    member_epoch: int
    partitions: tuple[TopicPartition, ...] | None  # None: all
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffsets:
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()
    unstable: frozenset[TopicPartition] = (
        frozenset()
    )  # an open transaction has pending offsets for them


# Queries and deletion.


class GroupSummary(NamedTuple):
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
