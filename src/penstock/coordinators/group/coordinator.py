"""The group coordinator of a broker: the requests of the group and offset APIs, by group.

Finds the shard of each group and runs a command on it; a client's fault is a reply, never an
exception. Owned by the event loop.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.group import Group
from penstock.coordinators.group.joining_connections import JoiningConnections, PendingJoin
from penstock.coordinators.group.member_bytes import MemberBudget
from penstock.coordinators.group.offsets.commands import MAX_TEXT_BYTES, Codes, refuse_commit
from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.group.refused_members import RefusedMembers
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
from penstock.coordinators.group.shard import GroupDependencies, GroupShard
from penstock.coordinators.group.state import GroupShardState, refuse_join
from penstock.coordinators.runtime.coordinator_runtime import CoordinatorRuntime
from penstock.coordinators.runtime.coordinator_shard import Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.load_times import LoadStatistics
from penstock.coordinators.runtime.pending_replies import Failed, MarkerReply
from penstock.coordinators.runtime.result import LATER, Command, CoordinatorResult, Waiter
from penstock.logs.event_logger import EventLogger
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker

ReplyType = TypeVar("ReplyType")

GroupCommand = Command[GroupShardState, ReplyType, GroupRecord]

UNIQUE_BYTES = 37  # of a member id: "-" and a UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorStatistics:
    shards: int
    loading: int
    groups: int
    offsets: int
    waiting: int  # requests that wait for a reply
    unexpected_errors: int  # each reloaded a shard from its log
    loads: LoadStatistics
    member_bytes: int  # of all groups, by `member_bytes`
    pending_joins: int  # ids that were given out, as far as connections have to be watched


class GroupStatistics(NamedTuple):
    """One group of an active shard."""

    group: str
    state: str  # as ListGroups names it: Stable, Empty, ...
    protocol: str  # "classic" or "consumer"
    members: int
    offsets: tuple[tuple[TopicPartition, int], ...]  # committed


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    NAME = "group coordinator"

    def __init__(
        self,
        *,
        log: CoordinatorLog,
        topics: Topics,
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        config: Callable[[], GroupConfig],
        logger: EventLogger,
    ) -> None:
        super().__init__(log=log, timers=timers, wall_ms=wall_ms, logger=logger)
        self._config = config
        self._budget = MemberBudget()
        self._refused_members = RefusedMembers(logger, wall_ms)
        self._joining = JoiningConnections(self._is_pending, self._abandon_pending)
        self._dependencies = GroupDependencies(
            log=log,
            topics=topics,
            timers=timers,
            wall_ms=wall_ms,
            config=config,
            budget=self._budget,
            logger=logger,
            notes=self._notes,
            load_again=self._load_again,
            on_unexpected_error=self._on_unexpected_error,
        )

    def _new_shard(self, partition: int) -> GroupShard:
        return GroupShard(partition, self._dependencies)

    def _planned_partitions(self) -> int:
        return self._config().offsets_topic_partitions

    def on_topics_deleted(self, topics: Sequence[str]) -> None:
        """Deletes their offsets, because a new topic of the same name starts from scratch."""
        for shard in list(self._shards.values()):
            shard.delete_of_topics(frozenset(topics))

    def on_topics_changed(self) -> None:
        """Topics were created, deleted or got partitions, so target assignments may be stale."""
        for shard in self._shards.values():
            shard.state.topics_changed()

    async def _run(
        self,
        group: str,
        command: GroupCommand[ReplyType],
        *,
        is_volatile: bool = False,
        requires_name: bool = False,
    ) -> ReplyType | Failed:
        """`requires_name`: of the offset APIs only, some allow an empty group id."""
        is_long = len(group) * 4 > MAX_TEXT_BYTES and len(group.encode()) > MAX_TEXT_BYTES
        if is_long or (requires_name and not group):
            return Failed(ErrorCode.INVALID_GROUP_ID)
        shard = self._find_shard(group)
        if isinstance(shard, ErrorCode):
            return Failed(shard)
        return await shard.run(command, is_volatile=is_volatile)

    # -- members ---------------------------------------------------------------------------

    async def join(self, request: JoinGroup, origin: RequestOrigin | None = None) -> JoinGroupReply:
        if not (_is_within_limits(request, self._config()) and _fits_into_record(request)):
            return refuse_join(request, ErrorCode.INVALID_REQUEST)
        if origin is not None:
            self._joining.discard(origin, PendingJoin(request.group, request.member))
        reply = await self._run(
            request.group,
            lambda state, waiter, now_ms: self._join(state, request, origin, waiter, now_ms),
            is_volatile=True,
            requires_name=True,
        )
        if isinstance(reply, Failed):
            return refuse_join(request, reply.code)
        self._log_limit(request.group, reply.limit)
        if origin is not None and reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self._joining.add(origin, PendingJoin(request.group, reply.member))
        return reply

    def _join(
        self,
        state: GroupShardState,
        request: JoinGroup,
        origin: RequestOrigin | None,
        waiter: Waiter,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupReply, GroupRecord]:
        result = state.join(request, waiter, now_ms)
        shard = self._find_shard(request.group)
        if origin is not None and result.reply is LATER and isinstance(shard, GroupShard):
            origin.on_close(lambda: shard.abandon_join(request.group, waiter))
        return result

    def _is_pending(self, pending: PendingJoin) -> bool:
        shard = self._find_shard(pending.group)
        return isinstance(shard, GroupShard) and shard.state.is_pending(*pending)

    def _abandon_pending(self, pending: PendingJoin) -> None:
        shard = self._find_shard(pending.group)
        if isinstance(shard, GroupShard):
            shard.abandon_pending(*pending)

    async def sync(self, request: SyncGroup) -> SyncGroupReply:
        reply = await self._run(
            request.group,
            lambda state, waiter, now_ms: state.sync(request, waiter, now_ms),
            is_volatile=True,
            requires_name=True,
        )
        return SyncGroupReply(error=reply.code) if isinstance(reply, Failed) else reply

    async def heartbeat(self, request: Heartbeat) -> ErrorCode:
        reply = await self._run(
            request.group,
            lambda state, _, now_ms: state.heartbeat(request, now_ms),
            is_volatile=True,
            requires_name=True,
        )
        if not isinstance(reply, Failed):
            return reply
        # Sessions start when the group is loaded, so no member can be late before that.
        is_loading = reply.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if is_loading else reply.code

    async def leave(
        self, group: str, leavers: Sequence[LeavingMember]
    ) -> tuple[ErrorCode, tuple[LeaveResult, ...]]:
        reply = await self._run(
            group,
            lambda state, _, now_ms: state.leave(group, leavers, now_ms),
            is_volatile=True,
            requires_name=True,
        )
        return (reply.code, ()) if isinstance(reply, Failed) else reply

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        reply = await self._run(
            request.group,
            lambda state, _, now_ms: state.consumer_heartbeat(request, now_ms),
            is_volatile=True,
            requires_name=True,
        )
        if isinstance(reply, Failed):
            return ConsumerHeartbeatReply(error=reply.code, message=reply.code.message)
        self._log_limit(request.group, reply.limit)
        return reply

    def _log_limit(self, group: str, limit: str | None) -> None:
        if limit is not None:
            self._refused_members.add(group, limit)

    # -- offsets ---------------------------------------------------------------------------

    async def commit(self, request: CommitOffsets) -> Mapping[TopicPartition, ErrorCode]:
        reply = await self._run(
            request.group, lambda state, _, now_ms: state.commit(request, now_ms)
        )
        return refuse_commit(request, reply.code) if isinstance(reply, Failed) else reply

    async def commit_in_transaction(
        self, request: CommitInTransaction
    ) -> Mapping[TopicPartition, ErrorCode]:
        reply = await self._run(
            request.commit.group,
            lambda state, _, now_ms: state.commit_in_transaction(request, now_ms),
            requires_name=True,
        )
        return refuse_commit(request.commit, reply.code) if isinstance(reply, Failed) else reply

    def end_transaction(self, partition: int, marker: TransactionMarker) -> Awaitable[ErrorCode]:
        """The marker is written when this returns, and committed when the awaited code is NONE."""
        shard = self._find_active_shard(partition)
        return MarkerReply(shard if isinstance(shard, ErrorCode) else shard.end_transaction(marker))

    async def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        reply = await self._run(
            request.group, lambda state, _, now_ms: CoordinatorResult(reply=state.fetch(request))
        )
        if not isinstance(reply, Failed):
            return reply
        # Clients before 3.9 retry only on NOT_COORDINATOR.
        is_unavailable = reply.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return FetchedOffsets(error=ErrorCode.NOT_COORDINATOR if is_unavailable else reply.code)

    async def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, Codes]:
        reply = await self._run(
            group,
            lambda state, _, now_ms: state.delete_offsets(group, partitions),
            is_volatile=True,
            requires_name=True,
        )
        return (reply.code, {}) if isinstance(reply, Failed) else reply

    # -- queries and deletion --------------------------------------------------------------

    async def delete_group(self, group: str) -> ErrorCode:
        reply = await self._run(
            group, lambda state, _, now_ms: state.delete_group(group, now_ms), is_volatile=True
        )
        return reply.code if isinstance(reply, Failed) else reply

    async def describe(self, group: str) -> DescribedGroup:
        reply = await self._run(
            group, lambda state, _, now_ms: CoordinatorResult(reply=state.describe(group))
        )
        if isinstance(reply, Failed):
            return DescribedGroup(group=group, error=reply.code)
        return reply

    async def consumer_describe(self, group: str) -> DescribedConsumerGroup:
        reply = await self._run(
            group, lambda state, _, now_ms: CoordinatorResult(reply=state.consumer_describe(group))
        )
        if isinstance(reply, Failed):
            return DescribedConsumerGroup(group=group, error=reply.code, message=reply.code.message)
        return reply

    async def list_groups(
        self, states: frozenset[str], kinds: frozenset[str]
    ) -> tuple[ErrorCode, list[GroupSummary]]:
        """List the groups of this broker's shards only."""
        if self._closed.is_set():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        code = ErrorCode.NONE
        listings: list[GroupSummary] = []
        for shard in list(self._shards.values()):
            if shard.status is Status.LOADING:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            elif shard.status is Status.ACTIVE and shard.is_led:
                reply = await shard.run(
                    lambda state, _, now_ms: CoordinatorResult(reply=state.list_groups())
                )
                if isinstance(reply, Failed):
                    code = reply.code
                else:
                    listings += reply
        return code, [listing for listing in listings if matches(listing, states, kinds)]

    def slices_of_groups(self, size: int) -> Iterator[list[GroupStatistics]]:
        """So many groups at a time: a caller with many can let others run between slices."""
        for shard in list(self._shards.values()):
            if shard.status is not Status.ACTIVE or not shard.is_led:
                continue
            names = iter(shard.state.group_names())
            while batch := list(islice(names, size)):
                yield [
                    _group_statistics(group, shard.state)
                    for name in batch
                    if (group := shard.state.find_group(name)) is not None
                ]

    def statistics(self) -> GroupCoordinatorStatistics:
        shards = self._shards.values()
        return GroupCoordinatorStatistics(
            shards=len(shards),
            loading=sum(shard.status is Status.LOADING for shard in shards),
            groups=sum(len(shard.state.group_names()) for shard in shards),
            offsets=sum(shard.state.offsets.count() for shard in shards),
            waiting=sum(shard.waiting for shard in shards),
            unexpected_errors=self._unexpected_errors,
            loads=self._loads,
            member_bytes=self._budget.used_bytes,
            pending_joins=self._joining.count(),
        )


def _group_statistics(group: Group, state: GroupShardState) -> GroupStatistics:
    summary = group.list_group()
    return GroupStatistics(
        group=group.name,
        state=summary.state,
        protocol=summary.kind,
        members=group.member_count,
        offsets=tuple((tp, value.offset) for tp, value in state.offsets.of_group(group.name)),
    )


def matches(listing: GroupSummary, states: frozenset[str], kinds: frozenset[str]) -> bool:
    """Case-insensitive, as in Kafka; an empty filter matches everything."""
    has_state = not states or listing.state.lower() in {state.lower() for state in states}
    return has_state and (not kinds or listing.kind.lower() in {kind.lower() for kind in kinds})


def _is_within_limits(request: JoinGroup, config: GroupConfig) -> bool:
    """Checked before anything is built from the request."""
    sizes = (len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
    is_few = len(request.protocols) <= config.member_max_protocols
    return is_few and sum(sizes) <= config.member_max_bytes


def _fits_into_record(request: JoinGroup) -> bool:
    """Strings of a record are shorter than those of newer requests may be, and a member id begins
    with its instance or its client id."""
    prefixes = (request.instance or "", request.client_id)
    texts = (
        request.member,
        request.client_host,
        request.protocol_type,
        *(protocol.name for protocol in request.protocols),
    )
    return all(len(text.encode()) <= MAX_TEXT_BYTES for text in texts) and all(
        len(prefix.encode()) <= MAX_TEXT_BYTES - UNIQUE_BYTES for prefix in prefixes
    )
