"""The groups and committed offsets of one shard, and the commands on them.

Looks a group up and calls it; decides itself only when one group replaces another. Durable state
changes in `replay` alone. A group that only has offsets is no object here: it exists as long as
they do.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.coordinators.group.classic import state as classic_state
from penstock.coordinators.group.classic.group import ClassicGroup
from penstock.coordinators.group.command_context import CommandEnvironment
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer import state as consumer_state
from penstock.coordinators.group.consumer.group import ConsumerGroup
from penstock.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from penstock.coordinators.group.consumer.upgrade import upgrade_on_heartbeat
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.group import Group
from penstock.coordinators.group.member_bytes import GroupCharges, MemberBudget
from penstock.coordinators.group.offsets import commands as offset_commands
from penstock.coordinators.group.offsets.commands import Codes
from penstock.coordinators.group.offsets.expiration import expire
from penstock.coordinators.group.offsets.migration import (
    Migration,
    MigrationRule,
    ZnodeOffset,
    migrate,
)
from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.record_batches import Entry, TransactionEnd
from penstock.coordinators.group.records import (
    ConsumerTopicsKey,
    GroupKey,
    GroupRecord,
    GroupValue,
    OffsetKey,
    OffsetValue,
)
from penstock.coordinators.group.requests import (
    DEAD,
    NO_GENERATION,
    UNKNOWN_MEMBER,
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
    SyncGroup,
    SyncGroupReply,
)
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.record_batches import WrittenBy
from penstock.coordinators.runtime.result import (
    LATER,
    CoordinatorResult,
    ReplyType,
    SetTimer,
    Waiter,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition


class GroupShardState:
    """Owned by its shard."""

    def __init__(
        self,
        *,
        topics: Topics,
        config: Callable[[], GroupConfig],
        budget: MemberBudget | None = None,
    ) -> None:
        self.offsets = OffsetStore()
        self.groups: dict[str, Group] = {}
        self._charges = GroupCharges(budget or MemberBudget())
        self._topics = topics
        self._config = config

    def _environment(self, now_ms: int) -> CommandEnvironment:
        config = self._config()
        free_bytes = self._charges.free_bytes(config)
        return CommandEnvironment(now_ms, config, self._topics, free_bytes)

    def _charge(self, name: str) -> None:
        """Called after every change of the group's members."""
        group = self.groups.get(name)
        self._charges.charge(name, 0 if group is None else group.memory_bytes)

    def release_memory(self) -> None:
        """This state is no longer in use."""
        self._charges.release()

    # -- replaying -------------------------------------------------------------------------

    def load(self, entry: Entry) -> None:
        """One entry of the log, while the shard loads."""
        if isinstance(entry, TransactionEnd):
            self.end_transaction(entry.producer_id, commit=entry.commit)
        else:
            self.replay(entry.record, offset=entry.offset, producer_id=entry.producer_id)

    def replay(
        self, record: GroupRecord, *, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        key, value = record
        if isinstance(key, OffsetKey):
            assert value is None or isinstance(value, OffsetValue)
            self.offsets.replay(key, value, record_offset=offset, producer_id=producer_id)
        elif isinstance(key, GroupKey):
            assert value is None or isinstance(value, GroupValue)
            self._replay_classic(key.group, value)
        elif not isinstance(key, ConsumerTopicsKey):
            self._replay_consumer(key.group, record)

    def _replay_classic(self, name: str, value: GroupValue | None) -> None:
        """A tombstone does not concern a group of the other protocol: that one came later."""
        group = self.groups.get(name)
        if not isinstance(group, ClassicGroup):
            if value is None:
                return
            group = self.groups[name] = ClassicGroup(name)
        classic_state.replay(group, value)
        if value is None:
            del self.groups[name]
        self._charge(name)

    def _replay_consumer(self, name: str, record: GroupRecord) -> None:
        """Like `_replay_classic`, for consumer groups."""
        group = self.groups.get(name)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = self.groups[name] = ConsumerGroup(name=name)
        consumer_state.replay(group, record)
        if not group.is_stored:
            del self.groups[name]
        self._charge(name)

    def snapshot(self) -> object:
        """The durable state; equal for equal states."""
        groups = {name: group.snapshot() for name, group in self.groups.items()}
        stored = {name: snapshot for name, snapshot in groups.items() if snapshot is not None}
        return self.offsets.snapshot(), stored

    # -- members ---------------------------------------------------------------------------

    def join(
        self, request: JoinGroup, waiter: Waiter, now_ms: int
    ) -> CoordinatorResult[JoinGroupReply, GroupRecord]:
        group = self.groups.get(request.group)
        environment = self._environment(now_ms)
        if isinstance(group, ClassicGroup) or (isinstance(group, ConsumerGroup) and group.members):
            return self._cleaned(request.group, group.join(request, waiter, environment))
        if request.member != UNKNOWN_MEMBER:
            return CoordinatorResult(reply=refuse_join(request, ErrorCode.UNKNOWN_MEMBER_ID))
        new = ClassicGroup(request.group)
        result = new.join(request, waiter, environment)
        if not _is_admitted(result):
            return result
        self.groups[request.group] = new
        self._charge(request.group)
        old = () if group is None else group.tombstones()  # an empty consumer group is replaced
        return replace(result, records=(*old, *result.records))

    def sync(
        self, request: SyncGroup, waiter: Waiter, now_ms: int
    ) -> CoordinatorResult[SyncGroupReply, GroupRecord]:
        group = self.groups.get(request.group)
        if group is None:
            return CoordinatorResult(reply=SyncGroupReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        result = group.sync(request, waiter, self._environment(now_ms))
        self._charge(request.group)
        return result

    def heartbeat(
        self, request: Heartbeat, now_ms: int
    ) -> CoordinatorResult[ErrorCode, GroupRecord]:
        group = self.groups.get(request.group)
        if group is None:
            return CoordinatorResult(reply=ErrorCode.UNKNOWN_MEMBER_ID)
        return group.heartbeat(request, self._environment(now_ms))

    def leave(
        self, name: str, leavers: Sequence[LeavingMember], now_ms: int
    ) -> CoordinatorResult[tuple[ErrorCode, tuple[LeaveResult, ...]], GroupRecord]:
        group = self.groups.get(name)
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            results = tuple(
                LeaveResult(member.member, member.instance, unknown) for member in leavers
            )
            return CoordinatorResult(reply=(ErrorCode.NONE, results))
        return self._cleaned(name, group.leave(leavers, self._environment(now_ms)))

    def abandon_join(
        self, name: str, waiter: Waiter, now_ms: int
    ) -> CoordinatorResult[None, GroupRecord]:
        """The connection of a join that waits has closed."""
        group = self.groups.get(name)
        if not isinstance(group, ClassicGroup):
            return CoordinatorResult(reply=None)
        return self._cleaned(name, group.abandon_join(waiter, self._environment(now_ms)))

    def abandon_pending(
        self, name: str, member_id: str, now_ms: int
    ) -> CoordinatorResult[None, GroupRecord]:
        """The connection of a member that was given an id, and has not joined, has closed."""
        group = self.groups.get(name)
        if not isinstance(group, ClassicGroup):
            return CoordinatorResult(reply=None)
        return self._cleaned(name, group.abandon_pending(member_id, self._environment(now_ms)))

    def is_pending(self, name: str, member_id: str) -> bool:
        """Whether the id was given out and nobody has joined with it."""
        group = self.groups.get(name)
        return isinstance(group, ClassicGroup) and member_id in group.pending

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, now_ms: int
    ) -> CoordinatorResult[ConsumerHeartbeatReply, GroupRecord]:
        """The replay of a join's records creates the group, or replaces the classic one."""
        group = self.groups.get(request.group)
        environment = self._environment(now_ms)
        if isinstance(group, ClassicGroup):
            upgraded = upgrade_on_heartbeat(group, request, environment)
            self._charge(request.group)
            return upgraded
        if not isinstance(group, ConsumerGroup):
            group = ConsumerGroup(name=request.group)
        return group.consumer_heartbeat(request, environment)

    def on_timer(self, key: TimerKey, now_ms: int) -> CoordinatorResult[None, GroupRecord]:
        group = self.groups.get(key.group)
        if group is None:
            return CoordinatorResult(reply=None)
        return self._cleaned(key.group, group.on_timer(key, self._environment(now_ms)))

    def on_loaded(self, now_ms: int) -> CoordinatorResult[None, GroupRecord]:
        """Start the session of every member of every group."""
        environment = self._environment(now_ms)
        results = [group.on_loaded(environment) for group in self.groups.values()]
        return CoordinatorResult(
            reply=None,
            records=[record for result in results for record in result.records],
            timers=[change for result in results for change in result.timers],
        )

    def topics_changed(self) -> None:
        for group in self.groups.values():
            group.topics_changed()

    def _cleaned(
        self, name: str, result: CoordinatorResult[ReplyType, GroupRecord]
    ) -> CoordinatorResult[ReplyType, GroupRecord]:
        """Drops a group that never got a member: its pending ones left, or timed out."""
        if not result.records and self.groups[name].is_vacant:
            del self.groups[name]
        self._charge(name)
        return result

    # -- queries and deletion --------------------------------------------------------------

    def group_names(self) -> list[str]:
        return sorted(self.offsets.groups().union(self.groups))

    def find_group(self, name: str) -> Group | None:
        """A group that only has offsets looks like one that nobody ever joined."""
        group = self.groups.get(name)
        if group is None and self.offsets.has_group(name):
            return ClassicGroup(name)
        return group

    def describe(self, name: str) -> DescribedGroup:
        group = self.find_group(name)
        if group is None:
            return DescribedGroup(
                group=name,
                error=ErrorCode.GROUP_ID_NOT_FOUND,
                message=f"group {name} does not exist",
                state=DEAD,
            )
        return group.describe()

    def consumer_describe(self, name: str) -> DescribedConsumerGroup:
        group = self.find_group(name)
        if group is None:
            return DescribedConsumerGroup(
                group=name,
                error=ErrorCode.GROUP_ID_NOT_FOUND,
                message=f"group {name} does not exist",
                state=DEAD,
            )
        return group.consumer_describe(self._config(), self._topics)

    def list_groups(self) -> list[GroupSummary]:
        groups = map(self.find_group, self.group_names())
        return [group.list_group() for group in groups if group is not None]

    def delete_group(self, name: str, now_ms: int) -> CoordinatorResult[ErrorCode, GroupRecord]:
        group = self.find_group(name)
        if group is None:
            return CoordinatorResult(reply=ErrorCode.GROUP_ID_NOT_FOUND)
        result = group.delete(self._environment(now_ms))
        if result.reply is not ErrorCode.NONE:
            return result
        offsets = offset_commands.delete_all(self.offsets, name)
        return replace(result, records=(*offsets, *result.records))

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(self, request: CommitOffsets, *, is_transactional: bool = False) -> ErrorCode:
        """Whether the group allows it. Without a group, only a client without membership may."""
        group = self.find_group(request.group)
        if group is not None:
            return group.check_commit(request, is_transactional=is_transactional)
        if request.generation <= NO_GENERATION:
            return ErrorCode.NONE
        is_new_request = request.is_consumer_protocol
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new_request else ErrorCode.ILLEGAL_GENERATION

    def session_timer(self, request: CommitOffsets) -> Sequence[SetTimer]:
        """A commit shows that the member is alive."""
        group = self.groups.get(request.group)
        if group is None:
            return ()
        return group.session_timer(request.member, self._config().for_group(request.group))

    def commit(self, request: CommitOffsets, now_ms: int) -> CoordinatorResult[Codes, GroupRecord]:
        refusal = self.check_commit(request)
        if refusal is not ErrorCode.NONE:
            return CoordinatorResult(reply=offset_commands.refuse_commit(request, refusal))
        result = offset_commands.commit(
            request, topics=self._topics, now_ms=now_ms, config=self._config()
        )
        return CoordinatorResult(
            reply=result.reply, records=result.records, timers=self.session_timer(request)
        )

    def commit_in_transaction(
        self, request: CommitInTransaction, now_ms: int
    ) -> CoordinatorResult[Codes, GroupRecord]:
        """The transaction is checked first, so that a fenced producer learns that it is fenced."""
        refusal = request.find_refusal()
        if refusal is ErrorCode.NONE:
            refusal = self.check_commit(request.commit, is_transactional=True)
        if refusal is not ErrorCode.NONE:
            return CoordinatorResult(reply=offset_commands.refuse_commit(request.commit, refusal))
        result = offset_commands.commit(
            request.commit, topics=self._topics, now_ms=now_ms, config=self._config()
        )
        return CoordinatorResult(
            reply=result.reply,
            records=result.records,
            written_by=WrittenBy(request.producer_id, request.producer_epoch),
        )

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Replays a marker."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        group = self.groups.get(request.group)
        refusal = ErrorCode.NONE if group is None else group.check_fetch(request)
        if refusal is not ErrorCode.NONE:
            return FetchedOffsets(error=refusal)
        return offset_commands.fetch(self.offsets, request)

    def migrate_offsets(
        self,
        group: str,
        znodes: Mapping[TopicPartition, ZnodeOffset],
        rule: MigrationRule,
        now_ms: int,
    ) -> CoordinatorResult[Migration, GroupRecord]:
        return migrate(self.offsets, group, znodes, rule, topics=self._topics, now_ms=now_ms)

    def delete_offsets(
        self, name: str, partitions: Sequence[TopicPartition]
    ) -> CoordinatorResult[tuple[ErrorCode, Codes], GroupRecord]:
        group = self.find_group(name)
        if group is None:
            return CoordinatorResult(reply=(ErrorCode.GROUP_ID_NOT_FOUND, {}))
        checks = {topic: group.check_delete_offsets(topic) for topic in _topics_of(partitions)}
        for code in checks.values():
            if code in _OF_THE_WHOLE_GROUP:
                return CoordinatorResult(reply=(code, {}))
        codes, records = offset_commands.delete_offsets(
            self.offsets, name, partitions, check_topic=checks.__getitem__
        )
        return CoordinatorResult(reply=(ErrorCode.NONE, codes), records=records)

    def delete_of_topics(self, topics: frozenset[str]) -> CoordinatorResult[None, GroupRecord]:
        records = offset_commands.delete_of_topics(self.offsets, topics)
        return CoordinatorResult(reply=None, records=records)

    def expire(self, names: Iterable[str], now_ms: int) -> CoordinatorResult[None, GroupRecord]:
        records = [record for name in names for record in self._expire(name, now_ms)]
        return CoordinatorResult(reply=None, records=records)

    def _expire(self, name: str, now_ms: int) -> Sequence[GroupRecord]:
        """An empty group is deleted with its last offset."""
        group = self.find_group(name)
        if group is None:
            return ()
        expired = expire(
            self.offsets,
            name,
            group.expiry_base_ms,
            now_ms=now_ms,
            retention_ms=self._config().offsets_retention_ms,
        )
        left = sum(1 for _ in self.offsets.of_group(name)) - len(expired)
        if left or self.offsets.has_pending(name) or not group.is_deserted:
            return expired
        return (*expired, *group.tombstones())


_OF_THE_WHOLE_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP)


def refuse_join(request: JoinGroup, code: ErrorCode) -> JoinGroupReply:
    return JoinGroupReply(error=code, member=request.member)


def _is_admitted(result: CoordinatorResult[JoinGroupReply, GroupRecord]) -> bool:
    if result.reply is LATER:
        return True
    assert isinstance(result.reply, JoinGroupReply)
    return result.reply.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)


def _topics_of(partitions: Sequence[TopicPartition]) -> Iterable[str]:
    return dict.fromkeys(tp.topic for tp in partitions)
