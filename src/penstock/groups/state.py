"""The groups and offsets of one shard, and what each command to them comes to.

Joins the deciders of groups with those of offsets; changes nothing durable but in `replay`. A
group that has only offsets is no object here: it is there while they are.
"""

from collections.abc import Callable, Iterable, Sequence

from penstock.groups import classic, offset_commands
from penstock.groups.batches import Entry, TransactionEnd
from penstock.groups.classic_state import ClassicGroup
from penstock.groups.config import GroupConfig
from penstock.groups.expiry import expire
from penstock.groups.offset_commands import Codes
from penstock.groups.offsets import OffsetStore
from penstock.groups.outcome import CancelTimer, Outcome, SetTimer, TimerKey, Waiter
from penstock.groups.ports import Topics
from penstock.groups.records import GroupKey, GroupRecord, GroupValue, OffsetKey, OffsetValue
from penstock.groups.requests import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    CommitOffsets,
    DescribedGroup,
    FetchedOffsets,
    FetchOffsets,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    ListedGroup,
    Sync,
    Synced,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition

DEAD = "Dead"


class ShardState:
    """Owned by its shard."""

    def __init__(self, *, topics: Topics, config: Callable[[], GroupConfig]) -> None:
        self.offsets = OffsetStore()
        self.groups: dict[str, ClassicGroup] = {}
        self._topics = topics
        self._config = config

    # -- replaying -------------------------------------------------------------------------

    def take(self, entry: Entry) -> None:
        """What the log says, while it is loaded."""
        if isinstance(entry, TransactionEnd):
            self.offsets.end_transaction(entry.producer_id, commit=entry.commit)
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

    def _replay_classic(self, name: str, value: GroupValue | None) -> None:
        group = self.groups.get(name)
        if group is None:
            if value is None:
                return
            group = self.groups[name] = ClassicGroup(name)
        classic.replay(group, value)
        if value is None:
            del self.groups[name]

    def snapshot(self) -> object:
        """What is durable; equal for equal states."""
        stored = {name: each.stored for name, each in self.groups.items() if each.stored}
        return self.offsets.snapshot(), stored

    # -- groups ----------------------------------------------------------------------------

    def group_names(self) -> list[str]:
        return sorted(self.offsets.groups().union(self.groups))

    def find_group(self, name: str) -> ClassicGroup | None:
        """One that only has offsets looks like one that nobody ever joined."""
        group = self.groups.get(name)
        if group is None and self.offsets.has_group(name):
            return ClassicGroup(name)
        return group

    def drop_if_vacant(self, name: str) -> bool:
        """A group that somebody asked for and nobody joined; False while there is one to keep."""
        group = self.groups.get(name)
        if group is not None and group.is_vacant:
            del self.groups[name]
        return name not in self.groups

    def join(self, request: Join, waiter: Waiter, now_ms: int) -> Outcome[Joined]:
        group = self.groups.get(request.group)
        if group is None:
            if request.member != UNKNOWN_MEMBER:
                return Outcome(answer=refuse_join(request, ErrorCode.UNKNOWN_MEMBER_ID))
            group = self.groups[request.group] = ClassicGroup(request.group)
        return classic.join(group, request, waiter, now_ms, self._config())

    def sync(self, request: Sync, waiter: Waiter, now_ms: int) -> Outcome[Synced]:
        group = self.groups.get(request.group)
        if group is None:
            return Outcome(answer=Synced(error=ErrorCode.UNKNOWN_MEMBER_ID))
        return classic.sync(group, request, waiter, now_ms, self._config())

    def heartbeat(self, request: Heartbeat, now_ms: int) -> Outcome[ErrorCode]:
        group = self.groups.get(request.group)
        if group is None:
            return Outcome(answer=ErrorCode.UNKNOWN_MEMBER_ID)
        return classic.heartbeat(group, request, now_ms, self._config())

    def leave(
        self, name: str, members: Sequence[Leaver], now_ms: int
    ) -> Outcome[tuple[ErrorCode, tuple[Left, ...]]]:
        group = self.groups.get(name)
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            left = tuple(Left(each.member, each.instance, unknown) for each in members)
            return Outcome(answer=(ErrorCode.NONE, left))
        return classic.leave(group, members, now_ms, self._config())

    def describe(self, name: str) -> DescribedGroup:
        group = self.find_group(name)
        if group is None:
            return DescribedGroup(
                group=name,
                error=ErrorCode.GROUP_ID_NOT_FOUND,
                message=f"there is no group {name}",
                state=DEAD,
            )
        return classic.describe(group)

    def list_groups(self) -> list[ListedGroup]:
        found = map(self.find_group, self.group_names())
        return [classic.list_group(each) for each in found if each is not None]

    def delete_group(self, name: str, now_ms: int) -> Outcome[ErrorCode]:
        group = self.find_group(name)
        if group is None:
            return Outcome(answer=ErrorCode.GROUP_ID_NOT_FOUND)
        outcome = classic.delete(group, now_ms, self._config())
        if outcome.answer is not ErrorCode.NONE:
            return outcome
        offsets = offset_commands.delete_all(self.offsets, name)
        return _with_records(outcome, (*offsets, *outcome.records))

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None]:
        group = self.groups.get(key.group)
        if group is None:
            return Outcome(answer=None)
        return classic.on_timer(group, key, now_ms, self._config())

    def on_loaded(self, now_ms: int) -> Outcome[None]:
        """Every member of every group has its time to be heard of, from now on."""
        outcomes = [
            classic.on_loaded(each, now_ms, self._config()) for each in self.groups.values()
        ]
        records: list[GroupRecord] = [one for each in outcomes for one in each.records]
        timers: list[SetTimer | CancelTimer] = [one for each in outcomes for one in each.timers]
        return Outcome(answer=None, records=records, timers=timers)

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(self, request: CommitOffsets) -> ErrorCode:
        """Whether the group lets them be committed; without one, whoever claims no membership."""
        group = self.find_group(request.group)
        if group is not None:
            return classic.check_commit(group, request.member, request.instance, request.generation)
        if request.generation <= NO_GENERATION:
            return ErrorCode.NONE
        is_new_request = request.is_consumer_protocol
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new_request else ErrorCode.ILLEGAL_GENERATION

    def sign_of_life(self, request: CommitOffsets) -> Sequence[SetTimer]:
        """A member that commits is alive."""
        group = self.groups.get(request.group)
        return () if group is None else classic.session_timer(group, request.member)

    def commit(self, request: CommitOffsets, now_ms: int) -> Outcome[Codes]:
        refusal = self.check_commit(request)
        if refusal is not ErrorCode.NONE:
            return Outcome(answer=offset_commands.refuse_commit(request, refusal))
        outcome = offset_commands.commit(
            request, topics=self._topics, now_ms=now_ms, config=self._config()
        )
        return Outcome(
            answer=outcome.answer, records=outcome.records, timers=self.sign_of_life(request)
        )

    def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        return offset_commands.fetch(self.offsets, request)

    def delete_offsets(
        self, name: str, partitions: Sequence[TopicPartition]
    ) -> Outcome[tuple[ErrorCode, Codes]]:
        group = self.find_group(name)
        if group is None:
            return Outcome(answer=(ErrorCode.GROUP_ID_NOT_FOUND, {}))
        checks = {
            each.topic: classic.check_delete_offsets(group, each.topic) for each in partitions
        }
        for code in checks.values():
            if code in _OF_THE_WHOLE_GROUP:
                return Outcome(answer=(code, {}))
        outcome = offset_commands.delete_offsets(
            self.offsets, name, partitions, check_topic=checks.__getitem__
        )
        assert isinstance(outcome.answer, dict)
        return Outcome(answer=(ErrorCode.NONE, outcome.answer), records=outcome.records)

    def delete_of_topics(self, topics: frozenset[str]) -> Outcome[None]:
        return Outcome(answer=None, records=offset_commands.delete_of_topics(self.offsets, topics))

    def expire(self, names: Iterable[str], now_ms: int) -> Outcome[None]:
        records = [record for name in names for record in self._expire(name, now_ms)]
        return Outcome(answer=None, records=records)

    def _expire(self, name: str, now_ms: int) -> Sequence[GroupRecord]:
        """With the last offset goes the group, if nobody is in it."""
        group = self.find_group(name)
        if group is None:
            return ()
        over = expire(
            self.offsets,
            name,
            lambda topic, committed_ms: classic.expiry_base_ms(group, topic, committed_ms),
            now_ms=now_ms,
            retention_ms=self._config().offsets_retention_ms,
        )
        left = sum(1 for _ in self.offsets.of_group(name)) - len(over)
        if left or self.offsets.has_pending(name) or not _is_deserted(group):
            return over
        return (*over, classic.tombstone(group))


_OF_THE_WHOLE_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP)


def refuse_join(request: Join, code: ErrorCode) -> Joined:
    return Joined(error=code, member=request.member)


def _is_deserted(group: ClassicGroup) -> bool:
    is_stored = group.stored is not None
    return is_stored and not group.pending and classic.check_delete(group) is ErrorCode.NONE


def _with_records(
    outcome: Outcome[ErrorCode], records: Sequence[GroupRecord]
) -> Outcome[ErrorCode]:
    return Outcome(
        answer=outcome.answer, records=records, replies=outcome.replies, timers=outcome.timers
    )
