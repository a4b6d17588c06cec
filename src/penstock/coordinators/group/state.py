"""The groups and offsets of one shard, and what each command to them comes to.

Joins the deciders of groups with those of offsets; changes nothing durable but in `replay`. A
group that has only offsets is no object here: it is there while they are.
"""

from collections.abc import Callable, Iterable, Sequence

from penstock.coordinators.group import either_protocol as consumer_or_classic
from penstock.coordinators.group.classic.state import ClassicGroup
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer import protocol as consumer
from penstock.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from penstock.coordinators.group.consumer.state import ConsumerGroup
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.either_protocol import DEAD, Group
from penstock.coordinators.group.offsets import commands as offset_commands
from penstock.coordinators.group.offsets.commands import Codes
from penstock.coordinators.group.offsets.expiration import expire
from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.record_batches import Entry, TransactionEnd
from penstock.coordinators.group.records import GroupRecord, OffsetKey, OffsetValue
from penstock.coordinators.group.requests import (
    NO_GENERATION,
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
from penstock.coordinators.group.result import CancelTimer, GroupResult, SetTimer, TimerKey
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.coordinators.runtime.record_batches import WrittenBy
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition


class GroupShardState:
    """Owned by its shard."""

    def __init__(self, *, topics: Topics, config: Callable[[], GroupConfig]) -> None:
        self.offsets = OffsetStore()
        self.groups: dict[str, Group] = {}
        self._topics = topics
        self._config = config

    # -- replaying -------------------------------------------------------------------------

    def take(self, entry: Entry) -> None:
        """What the log says, while it is loaded."""
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
        else:
            consumer_or_classic.replay(self.groups, record)

    def snapshot(self) -> object:
        """What is durable; equal for equal states."""
        groups = {name: consumer_or_classic.snapshot(each) for name, each in self.groups.items()}
        stored = {name: each for name, each in groups.items() if each is not None}
        return self.offsets.snapshot(), stored

    # -- groups ----------------------------------------------------------------------------

    def group_names(self) -> list[str]:
        return sorted(self.offsets.groups().union(self.groups))

    def find_group(self, name: str) -> Group | None:
        """One that only has offsets looks like one that nobody ever joined."""
        group = self.groups.get(name)
        if group is None and self.offsets.has_group(name):
            return ClassicGroup(name)
        return group

    def drop_if_vacant(self, name: str) -> None:
        """A group that somebody asked for and nobody joined."""
        group = self.groups.get(name)
        if group is not None and consumer_or_classic.is_vacant(group):
            del self.groups[name]

    def join(self, request: JoinGroup, waiter: Waiter, now_ms: int) -> GroupResult[JoinGroupReply]:
        return consumer_or_classic.join(
            self.groups, request, waiter, now_ms, self._config(), self._topics
        )

    def sync(self, request: SyncGroup, waiter: Waiter, now_ms: int) -> GroupResult[SyncGroupReply]:
        group = self.groups.get(request.group)
        if group is None:
            return GroupResult(answer=SyncGroupReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        return consumer_or_classic.sync(
            group, request, waiter, now_ms, self._config(), self._topics
        )

    def heartbeat(self, request: Heartbeat, now_ms: int) -> GroupResult[ErrorCode]:
        group = self.groups.get(request.group)
        if group is None:
            return GroupResult(answer=ErrorCode.UNKNOWN_MEMBER_ID)
        return consumer_or_classic.heartbeat(group, request, now_ms, self._config(), self._topics)

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, now_ms: int
    ) -> GroupResult[ConsumerHeartbeatReply]:
        group = self.groups.get(request.group)
        return consumer.heartbeat(group, request, now_ms, self._config(), self._topics)

    def topics_changed(self) -> None:
        """Groups that the broker assigns look at them with the next heartbeat."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.topics_changed()

    def leave(
        self, name: str, members: Sequence[LeavingMember], now_ms: int
    ) -> GroupResult[tuple[ErrorCode, tuple[LeaveResult, ...]]]:
        group = self.groups.get(name)
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            left = tuple(LeaveResult(each.member, each.instance, unknown) for each in members)
            return GroupResult(answer=(ErrorCode.NONE, left))
        return consumer_or_classic.leave(group, members, now_ms, self._config(), self._topics)

    def describe(self, name: str) -> DescribedGroup:
        group = self.find_group(name)
        if group is None:
            return DescribedGroup(
                group=name,
                error=ErrorCode.GROUP_ID_NOT_FOUND,
                message=f"there is no group {name}",
                state=DEAD,
            )
        return consumer_or_classic.describe(group)

    def consumer_describe(self, name: str) -> DescribedConsumerGroup:
        group = self.find_group(name)
        return consumer_or_classic.consumer_describe(name, group, self._config(), self._topics)

    def list_groups(self) -> list[GroupListing]:
        found = map(self.find_group, self.group_names())
        return [consumer_or_classic.list_group(each) for each in found if each is not None]

    def delete_group(self, name: str, now_ms: int) -> GroupResult[ErrorCode]:
        group = self.find_group(name)
        if group is None:
            return GroupResult(answer=ErrorCode.GROUP_ID_NOT_FOUND)
        outcome = consumer_or_classic.delete(group, now_ms, self._config())
        if outcome.answer is not ErrorCode.NONE:
            return outcome
        offsets = offset_commands.delete_all(self.offsets, name)
        return _with_records(outcome, (*offsets, *outcome.records))

    def on_timer(self, key: TimerKey, now_ms: int) -> GroupResult[None]:
        group = self.groups.get(key.group)
        if group is None:
            return GroupResult(answer=None)
        return consumer_or_classic.on_timer(group, key, now_ms, self._config(), self._topics)

    def on_loaded(self, now_ms: int) -> GroupResult[None]:
        """Every member of every group has its time to be heard of, from now on."""
        outcomes = [
            consumer_or_classic.on_loaded(each, now_ms, self._config(), self._topics)
            for each in self.groups.values()
        ]
        records: list[GroupRecord] = [one for each in outcomes for one in each.records]
        timers: list[SetTimer | CancelTimer] = [one for each in outcomes for one in each.timers]
        return GroupResult(answer=None, records=records, timers=timers)

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(self, request: CommitOffsets, *, is_transactional: bool = False) -> ErrorCode:
        """Whether the group lets them be committed; without one, whoever claims no membership."""
        group = self.find_group(request.group)
        if group is not None:
            return consumer_or_classic.check_commit(
                group, request, is_transactional=is_transactional
            )
        if request.generation <= NO_GENERATION:
            return ErrorCode.NONE
        is_new_request = request.is_consumer_protocol
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new_request else ErrorCode.ILLEGAL_GENERATION

    def sign_of_life(self, request: CommitOffsets) -> Sequence[SetTimer]:
        """A member that commits is alive."""
        group = self.groups.get(request.group)
        if group is None:
            return ()
        return consumer_or_classic.session_timer(group, request.member, self._config())

    def commit(self, request: CommitOffsets, now_ms: int) -> GroupResult[Codes]:
        refusal = self.check_commit(request)
        if refusal is not ErrorCode.NONE:
            return GroupResult(answer=offset_commands.refuse_commit(request, refusal))
        outcome = offset_commands.commit(
            request, topics=self._topics, now_ms=now_ms, config=self._config()
        )
        return GroupResult(
            answer=outcome.answer, records=outcome.records, timers=self.sign_of_life(request)
        )

    def commit_in_transaction(
        self, request: CommitInTransaction, now_ms: int
    ) -> GroupResult[Codes]:
        """Whether the transaction goes on counts first: a fenced producer learns that it is."""
        refusal = request.find_refusal()
        if refusal is ErrorCode.NONE:
            refusal = self.check_commit(request.commit, is_transactional=True)
        if refusal is not ErrorCode.NONE:
            return GroupResult(answer=offset_commands.refuse_commit(request.commit, refusal))
        outcome = offset_commands.commit(
            request.commit, topics=self._topics, now_ms=now_ms, config=self._config()
        )
        return GroupResult(
            answer=outcome.answer,
            records=outcome.records,
            written_by=WrittenBy(request.producer_id, request.producer_epoch),
        )

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker stands in the log."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        refusal = consumer_or_classic.check_fetch(self.groups.get(request.group), request)
        if refusal is not ErrorCode.NONE:
            return FetchedOffsets(error=refusal)
        return offset_commands.fetch(self.offsets, request)

    def delete_offsets(
        self, name: str, partitions: Sequence[TopicPartition]
    ) -> GroupResult[tuple[ErrorCode, Codes]]:
        group = self.find_group(name)
        if group is None:
            return GroupResult(answer=(ErrorCode.GROUP_ID_NOT_FOUND, {}))
        checks = {
            each.topic: consumer_or_classic.check_delete_offsets(group, each.topic)
            for each in partitions
        }
        for code in checks.values():
            if code in _OF_THE_WHOLE_GROUP:
                return GroupResult(answer=(code, {}))
        outcome = offset_commands.delete_offsets(
            self.offsets, name, partitions, check_topic=checks.__getitem__
        )
        assert isinstance(outcome.answer, dict)
        return GroupResult(answer=(ErrorCode.NONE, outcome.answer), records=outcome.records)

    def delete_of_topics(self, topics: frozenset[str]) -> GroupResult[None]:
        return GroupResult(
            answer=None, records=offset_commands.delete_of_topics(self.offsets, topics)
        )

    def expire(self, names: Iterable[str], now_ms: int) -> GroupResult[None]:
        records = [record for name in names for record in self._expire(name, now_ms)]
        return GroupResult(answer=None, records=records)

    def _expire(self, name: str, now_ms: int) -> Sequence[GroupRecord]:
        """With the last offset goes the group, if nobody is in it."""
        group = self.find_group(name)
        if group is None:
            return ()
        over = expire(
            self.offsets,
            name,
            lambda topic, committed_ms: consumer_or_classic.expiry_base_ms(
                group, topic, committed_ms
            ),
            now_ms=now_ms,
            retention_ms=self._config().offsets_retention_ms,
        )
        left = sum(1 for _ in self.offsets.of_group(name)) - len(over)
        if left or self.offsets.has_pending(name) or not consumer_or_classic.is_deserted(group):
            return over
        return (*over, *consumer_or_classic.tombstones(group))


_OF_THE_WHOLE_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP)


def refuse_join(request: JoinGroup, code: ErrorCode) -> JoinGroupReply:
    return JoinGroupReply(error=code, member=request.member)


def _with_records(
    outcome: GroupResult[ErrorCode], records: Sequence[GroupRecord]
) -> GroupResult[ErrorCode]:
    return GroupResult(
        answer=outcome.answer, records=records, replies=outcome.replies, timers=outcome.timers
    )
