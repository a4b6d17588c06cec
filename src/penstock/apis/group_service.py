"""The interface of the group coordinator to its API handlers. No behaviour.

Every call checks the group id, whether this broker coordinates the group and whether it is loaded.
A client's fault is an error code, never an exception.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from penstock.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from penstock.coordinators.group.requests import (
    CommitInTransaction,
    CommitOffsets,
    DescribedGroup,
    FetchedOffsets,
    FetchOffsets,
    GroupSummary,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveResult,
    LeavingMember,
    RequestOrigin,
    SyncGroup,
    SyncGroupReply,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker


class GroupService(Protocol):
    async def ensure_topic(self) -> ErrorCode:
        """Creates the offsets topic if needed; NONE when this broker's metadata has it."""

    def partition_of(self, group: str) -> int:
        """The partition of that topic whose leader coordinates the group."""

    async def join(self, request: JoinGroup, origin: RequestOrigin | None = None) -> JoinGroupReply:
        """A new member whose connection closes before it is in a generation is forgotten."""

    async def sync(self, request: SyncGroup) -> SyncGroupReply: ...

    async def heartbeat(self, request: Heartbeat) -> ErrorCode: ...

    async def leave(
        self, group: str, members: Sequence[LeavingMember]
    ) -> tuple[ErrorCode, tuple[LeaveResult, ...]]: ...

    async def commit(self, request: CommitOffsets) -> Mapping[TopicPartition, ErrorCode]: ...

    async def commit_in_transaction(
        self, request: CommitInTransaction
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    def end_transaction(self, partition: int, marker: TransactionMarker) -> Awaitable[ErrorCode]:
        """The marker is written when this returns, and committed when the awaited code is NONE."""

    async def fetch(self, request: FetchOffsets) -> FetchedOffsets: ...

    async def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]: ...

    async def delete_group(self, group: str) -> ErrorCode: ...

    async def describe(self, group: str) -> DescribedGroup: ...

    async def list_groups(
        self, states: frozenset[str], kinds: frozenset[str]
    ) -> tuple[ErrorCode, list[GroupSummary]]:
        """Filters are case-insensitive; an empty one matches everything."""

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply: ...

    async def consumer_describe(self, group: str) -> DescribedConsumerGroup: ...
