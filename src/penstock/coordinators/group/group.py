"""Group: the interface of both group protocols to the shard state. No behaviour.

`ClassicGroup` and `ConsumerGroup` implement it. A group never changes its protocol: an upgrade or a
downgrade replaces it by a group of the other class.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.coordinators.group.command_context import CommandEnvironment
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.requests import DescribedConsumerGroup
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.group.requests import (
    CommitOffsets,
    DescribedGroup,
    FetchOffsets,
    GroupSummary,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveResult,
    LeavingMember,
    SyncGroup,
    SyncGroupReply,
)
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import CoordinatorResult, SetTimer, Waiter
from penstock.model.errors import ErrorCode


class Group(Protocol):
    name: str

    # -- members ---------------------------------------------------------------------------

    def join(
        self, request: JoinGroup, waiter: Waiter, environment: CommandEnvironment, /
    ) -> CoordinatorResult[JoinGroupReply, GroupRecord]: ...

    def sync(
        self, request: SyncGroup, waiter: Waiter, environment: CommandEnvironment, /
    ) -> CoordinatorResult[SyncGroupReply, GroupRecord]: ...

    def heartbeat(
        self, request: Heartbeat, environment: CommandEnvironment, /
    ) -> CoordinatorResult[ErrorCode, GroupRecord]: ...

    def leave(
        self, leavers: Sequence[LeavingMember], environment: CommandEnvironment, /
    ) -> CoordinatorResult[tuple[ErrorCode, tuple[LeaveResult, ...]], GroupRecord]: ...

    def on_timer(
        self, key: TimerKey, environment: CommandEnvironment, /
    ) -> CoordinatorResult[None, GroupRecord]:
        """Ignores timers of the other protocol, which a group of the same name may have set."""

    def on_loaded(self, environment: CommandEnvironment, /) -> CoordinatorResult[None, GroupRecord]:
        """The records have been replayed: every member's session starts now."""

    def session_timer(self, member_id: str, config: GroupConfig, /) -> Sequence[SetTimer]:
        """The session timer to reset after a commit of this member, if the protocol resets it."""

    def topics_changed(self) -> None:
        """A topic was created, deleted or got partitions."""

    # -- queries and deletion --------------------------------------------------------------

    @property
    def member_count(self) -> int: ...

    @property
    def memory_bytes(self) -> int:
        """The memory that the group takes, by `member_bytes`."""

    @property
    def is_vacant(self) -> bool:
        """Whether it has neither members nor a record, so that it need not be kept."""

    @property
    def is_deserted(self) -> bool:
        """Whether it has no members, present or pending, so that its last record may be deleted."""

    def snapshot(self) -> object | None:
        """The durable state; equal for equal states. None: nothing is durable."""

    def describe(self) -> DescribedGroup:
        """DescribeGroups, which covers classic groups only."""

    def consumer_describe(self, config: GroupConfig, topics: Topics, /) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe, which covers consumer groups only."""

    def list_group(self) -> GroupSummary: ...

    def delete(
        self, environment: CommandEnvironment, /
    ) -> CoordinatorResult[ErrorCode, GroupRecord]:
        """The caller deletes the offsets."""

    def tombstones(self) -> Sequence[GroupRecord]: ...

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(self, request: CommitOffsets, *, is_transactional: bool) -> ErrorCode: ...

    def check_fetch(self, request: FetchOffsets, /) -> ErrorCode: ...

    def check_delete_offsets(self, topic: str, /) -> ErrorCode: ...

    def expiry_base_ms(self, topic: str, committed_ms: int, /) -> int | None:
        """When the retention of a committed offset starts; None: it does not expire for now."""
