"""A fake group coordinator: returns what a test sets, and records its requests."""

from collections.abc import Awaitable, Mapping, Sequence

from penstock.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from penstock.coordinators.group.requests import (
    CommitInTransaction,
    CommitOffsets,
    DescribedGroup,
    FetchedOffset,
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

NONE = ErrorCode.NONE


class FakeGroupCoordinator:
    """`code` is the response to every request whose response is only an error code."""

    def __init__(self) -> None:
        self.requests: list[object] = []
        self.code = NONE
        self.topic_code = NONE  # returned by `ensure_topic`
        self.partition = 0
        self.joined = JoinGroupReply(error=NONE, member="m")
        self.synced = SyncGroupReply(error=NONE)
        self.left: tuple[LeaveResult, ...] = ()
        self.refused: dict[TopicPartition, ErrorCode] = {}  # errors of committed offsets
        self.offsets: dict[TopicPartition, FetchedOffset] = {}
        self.unstable: frozenset[TopicPartition] = frozenset()
        self.listed: list[GroupSummary] = []
        self.described: dict[str, DescribedGroup] = {}
        self.heartbeat_reply = ConsumerHeartbeatReply(error=NONE)
        self.consumer_described: dict[str, DescribedConsumerGroup] = {}

    async def ensure_topic(self) -> ErrorCode:
        self.requests.append("ensure_topic")
        return self.topic_code

    def partition_of(self, group: str) -> int:
        return self.partition

    async def join(self, request: JoinGroup, origin: RequestOrigin | None = None) -> JoinGroupReply:
        self.requests.append(request)
        return self.joined

    async def sync(self, request: SyncGroup) -> SyncGroupReply:
        self.requests.append(request)
        return self.synced

    async def heartbeat(self, request: Heartbeat) -> ErrorCode:
        self.requests.append(request)
        return self.code

    async def leave(
        self, group: str, members: Sequence[LeavingMember]
    ) -> tuple[ErrorCode, tuple[LeaveResult, ...]]:
        self.requests.append((group, tuple(members)))
        return self.code, self.left

    async def commit(self, request: CommitOffsets) -> Mapping[TopicPartition, ErrorCode]:
        self.requests.append(request)
        return {offset.tp: self.refused.get(offset.tp, self.code) for offset in request.offsets}

    async def commit_in_transaction(
        self, request: CommitInTransaction
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.requests.append(request)
        code = request.find_refusal()
        if code is not NONE:
            return {offset.tp: code for offset in request.commit.offsets}
        return {
            offset.tp: self.refused.get(offset.tp, self.code) for offset in request.commit.offsets
        }

    def end_transaction(self, partition: int, marker: TransactionMarker) -> Awaitable[ErrorCode]:
        self.requests.append((partition, marker))

        async def wait() -> ErrorCode:
            return self.code

        return wait()

    async def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        self.requests.append(request)
        if self.code is not NONE:
            return FetchedOffsets(error=self.code)
        wanted = self.offsets if request.partitions is None else request.partitions
        offsets = (self.offsets.get(tp, FetchedOffset(tp, -1, -1, "")) for tp in wanted)
        return FetchedOffsets(error=NONE, offsets=tuple(offsets), unstable=self.unstable)

    async def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]:
        self.requests.append((group, tuple(partitions)))
        if self.code is not NONE:
            return self.code, {}
        return NONE, {partition: self.refused.get(partition, NONE) for partition in partitions}

    async def delete_group(self, group: str) -> ErrorCode:
        self.requests.append(group)
        return self.code

    async def describe(self, group: str) -> DescribedGroup:
        self.requests.append(group)
        return self.described[group]

    async def list_groups(
        self, states: frozenset[str], kinds: frozenset[str]
    ) -> tuple[ErrorCode, list[GroupSummary]]:
        self.requests.append((states, kinds))
        return self.code, self.listed

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        self.requests.append(request)
        return self.heartbeat_reply

    async def consumer_describe(self, group: str) -> DescribedConsumerGroup:
        self.requests.append(group)
        return self.consumer_described[group]
