"""The group coordinator of a broker: what handlers ask of groups and offsets, by group.

Finds the shard of each group and has it decide; faults of clients are answers, never exceptions.
Owned by the event loop.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.offsets.commands import MAX_TEXT_BYTES, Codes, refuse_commit
from penstock.coordinators.group.requests import (
    CommitInTransaction,
    CommitOffsets,
    DescribedGroup,
    FetchedOffsets,
    FetchOffsets,
    GroupListing,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveResult,
    LeavingMember,
    SyncGroup,
    SyncGroupReply,
)
from penstock.coordinators.group.result import GroupResult
from penstock.coordinators.group.shard import Command, GroupDependencies, GroupShard
from penstock.coordinators.group.state import refuse_join
from penstock.coordinators.runtime.coordinator_runtime import CoordinatorRuntime
from penstock.coordinators.runtime.coordinator_shard import Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker

Answer = TypeVar("Answer")

UNIQUE_BYTES = 37  # what makes a member's id its own


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorStatistics:
    shards: int
    loading: int
    groups: int
    offsets: int
    waiting: int  # requests that wait for a group's members


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    def __init__(
        self,
        *,
        log: CoordinatorLog,
        topics: Topics,
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        config: Callable[[], GroupConfig],
        report: Callable[[str], None],
    ) -> None:
        super().__init__(log=log, timers=timers)
        self._config = config
        self._around = GroupDependencies(
            log=log,
            topics=topics,
            timers=timers,
            wall_ms=wall_ms,
            config=config,
            report=report,
            load_again=self._load_again,
        )

    def _new_shard(self, partition: int) -> GroupShard:
        return GroupShard(partition, self._around)

    def _planned_partitions(self) -> int:
        return self._config().offsets_topic_partitions

    def on_topics_deleted(self, topics: Sequence[str]) -> None:
        """Their offsets go; a topic of the same name begins anew."""
        for shard in list(self._shards.values()):
            shard.delete_of_topics(frozenset(topics))

    def on_topics_changed(self) -> None:
        """Some came, went or have more partitions: groups that the broker assigns may care."""
        for shard in self._shards.values():
            shard.state.topics_changed()

    async def _ask(
        self, group: str, command: Command[Answer], *, is_soft: bool = False
    ) -> Answer | Failed:
        if len(group) * 4 > MAX_TEXT_BYTES and len(group.encode()) > MAX_TEXT_BYTES:
            return Failed(ErrorCode.INVALID_GROUP_ID)
        shard = self._find_shard(group)
        if isinstance(shard, ErrorCode):
            return Failed(shard)
        return await shard.run(command, group=group, is_soft=is_soft)

    async def _ask_named(self, group: str, command: Command[Answer]) -> Answer | Failed:
        """Of groups with members: those have a name, and the command may change who they are."""
        if not group:
            return Failed(ErrorCode.INVALID_GROUP_ID)
        return await self._ask(group, command, is_soft=True)

    # -- members ---------------------------------------------------------------------------

    async def join(self, request: JoinGroup) -> JoinGroupReply:
        if not _can_be_written(request):
            return refuse_join(request, ErrorCode.INVALID_REQUEST)
        answer = await self._ask_named(
            request.group, lambda state, waiter, now_ms: state.join(request, waiter, now_ms)
        )
        return refuse_join(request, answer.code) if isinstance(answer, Failed) else answer

    async def sync(self, request: SyncGroup) -> SyncGroupReply:
        answer = await self._ask_named(
            request.group, lambda state, waiter, now_ms: state.sync(request, waiter, now_ms)
        )
        return SyncGroupReply(error=answer.code) if isinstance(answer, Failed) else answer

    async def heartbeat(self, request: Heartbeat) -> ErrorCode:
        answer = await self._ask_named(
            request.group, lambda state, _, now_ms: state.heartbeat(request, now_ms)
        )
        if not isinstance(answer, Failed):
            return answer
        # Sessions begin when the groups are loaded: until then nobody can be late.
        is_loading = answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if is_loading else answer.code

    async def leave(
        self, group: str, members: Sequence[LeavingMember]
    ) -> tuple[ErrorCode, tuple[LeaveResult, ...]]:
        answer = await self._ask_named(
            group, lambda state, _, now_ms: state.leave(group, members, now_ms)
        )
        return (answer.code, ()) if isinstance(answer, Failed) else answer

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        answer = await self._ask_named(
            request.group, lambda state, _, now_ms: state.consumer_heartbeat(request, now_ms)
        )
        if isinstance(answer, Failed):
            return ConsumerHeartbeatReply(error=answer.code, message=answer.code.message)
        return answer

    # -- offsets ---------------------------------------------------------------------------

    async def commit(self, request: CommitOffsets) -> Mapping[TopicPartition, ErrorCode]:
        answer = await self._ask(
            request.group, lambda state, _, now_ms: state.commit(request, now_ms)
        )
        return refuse_commit(request, answer.code) if isinstance(answer, Failed) else answer

    async def commit_in_transaction(
        self, request: CommitInTransaction
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Every group has a name here, since a transaction names it."""
        group = request.commit.group
        if not group:
            return refuse_commit(request.commit, ErrorCode.INVALID_GROUP_ID)
        answer = await self._ask(
            group, lambda state, _, now_ms: state.commit_in_transaction(request, now_ms)
        )
        return refuse_commit(request.commit, answer.code) if isinstance(answer, Failed) else answer

    def end_transaction(self, partition: int, marker: TransactionMarker) -> Awaitable[ErrorCode]:
        """The marker is written when this returns; the answer comes when it is committed."""
        shard = self._find_shard_of(partition)
        return _Ended(shard if isinstance(shard, ErrorCode) else shard.end_transaction(marker))

    async def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        answer = await self._ask(
            request.group,
            lambda state, _, now_ms: GroupResult(answer=state.fetch(request)),
        )
        if not isinstance(answer, Failed):
            return answer
        # Clients before 3.9 take no other error of those for a reason to try again.
        is_away = answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return FetchedOffsets(error=ErrorCode.NOT_COORDINATOR if is_away else answer.code)

    async def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, Codes]:
        answer = await self._ask_named(
            group, lambda state, _, now_ms: state.delete_offsets(group, partitions)
        )
        return (answer.code, {}) if isinstance(answer, Failed) else answer

    # -- looking and deleting --------------------------------------------------------------

    async def delete_group(self, group: str) -> ErrorCode:
        answer = await self._ask(
            group, lambda state, _, now_ms: state.delete_group(group, now_ms), is_soft=True
        )
        return answer.code if isinstance(answer, Failed) else answer

    async def describe(self, group: str) -> DescribedGroup:
        answer = await self._ask(
            group, lambda state, _, now_ms: GroupResult(answer=state.describe(group))
        )
        if isinstance(answer, Failed):
            return DescribedGroup(group=group, error=answer.code)
        return answer

    async def consumer_describe(self, group: str) -> DescribedConsumerGroup:
        answer = await self._ask(
            group, lambda state, _, now_ms: GroupResult(answer=state.consumer_describe(group))
        )
        if isinstance(answer, Failed):
            return DescribedConsumerGroup(
                group=group, error=answer.code, message=answer.code.message
            )
        return answer

    async def list_groups(
        self, states: frozenset[str], kinds: frozenset[str]
    ) -> tuple[ErrorCode, list[GroupListing]]:
        """Of the shards here; of none, where other brokers lead them all."""
        if self._closed.is_set():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        code = ErrorCode.NONE
        found: list[GroupListing] = []
        for shard in list(self._shards.values()):
            if shard.status is Status.LOADING:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            elif shard.status is Status.ACTIVE and shard.is_led:
                answer = await shard.run(
                    lambda state, _, now_ms: GroupResult(answer=state.list_groups()), is_soft=False
                )
                if isinstance(answer, Failed):
                    code = answer.code
                else:
                    found += answer
        return code, [each for each in found if is_wanted(each, states, kinds)]

    def statistics(self) -> GroupCoordinatorStatistics:
        shards = self._shards.values()
        return GroupCoordinatorStatistics(
            shards=len(shards),
            loading=sum(each.status is Status.LOADING for each in shards),
            groups=sum(len(each.state.group_names()) for each in shards),
            offsets=sum(each.state.offsets.count() for each in shards),
            waiting=sum(each.waiting for each in shards),
        )


def is_wanted(group: GroupListing, states: frozenset[str], kinds: frozenset[str]) -> bool:
    """Names are compared without regard to case, as Kafka does; of nothing asked all is wanted."""
    has_state = not states or group.state.lower() in {each.lower() for each in states}
    return has_state and (not kinds or group.kind.lower() in {each.lower() for each in kinds})


class _Ended:
    """Waits for a marker, or for nothing; may be dropped."""

    def __init__(self, told: "ErrorCode | Future[ErrorCode | Failed]") -> None:
        self._told = told

    def __await__(self) -> Generator[Any, None, ErrorCode]:
        told = self._told
        answer = told if isinstance(told, ErrorCode) else (yield from told)
        return answer.code if isinstance(answer, Failed) else answer


def _can_be_written(request: JoinGroup) -> bool:
    """Texts of a record are shorter than those of newer requests may be, and a member's id begins
    with its instance or its client's name."""
    names = (request.instance or "", request.client_id)
    texts = (
        request.member,
        request.client_host,
        request.protocol_type,
        *(each.name for each in request.protocols),
    )
    return all(len(each.encode()) <= MAX_TEXT_BYTES for each in texts) and all(
        len(each.encode()) <= MAX_TEXT_BYTES - UNIQUE_BYTES for each in names
    )
