"""Commands to a group of either protocol: each goes to the deciders of the kind the group is of.

And what changes the kind by itself: an empty group gives way to one of the other protocol, and a
record of one kind takes the place of a group of the other.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock.coordinators.group.classic import protocol as classic
from penstock.coordinators.group.classic.state import ClassicGroup
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer import protocol as consumer
from penstock.coordinators.group.consumer import queries as consumer_queries
from penstock.coordinators.group.consumer.requests import DescribedConsumerGroup
from penstock.coordinators.group.consumer.state import ConsumerGroup
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import ConsumerTopicsKey, GroupKey, GroupRecord, GroupValue
from penstock.coordinators.group.requests import (
    UNKNOWN_MEMBER,
    CommitOffsets,
    DescribedGroup,
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
from penstock.coordinators.group.result import LATER, GroupResult, SetTimer, TimerKey
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.model.errors import ErrorCode

Group = ClassicGroup | ConsumerGroup

DEAD = "Dead"


# -- what is stored ------------------------------------------------------------------------


def replay(groups: dict[str, Group], record: GroupRecord) -> None:
    """A tombstone says nothing about a group of the other kind: that came after it."""
    key, value = record
    known = groups.get(key.group)
    if isinstance(key, GroupKey):
        assert value is None or isinstance(value, GroupValue)
        _replay_classic(groups, key.group, known, value)
    elif not isinstance(key, ConsumerTopicsKey):
        if not isinstance(known, ConsumerGroup):
            if value is None:
                return
            known = groups[key.group] = ConsumerGroup(name=key.group)
        consumer.replay(known, record)
        if not known.is_stored:
            del groups[key.group]


def _replay_classic(
    groups: dict[str, Group], name: str, known: Group | None, value: GroupValue | None
) -> None:
    if not isinstance(known, ClassicGroup):
        if value is None:
            return
        known = groups[name] = ClassicGroup(name)
    classic.replay(known, value)
    if value is None:
        del groups[name]


def snapshot(group: Group) -> object | None:
    """What is durable; equal for equal states. None: nothing is."""
    return group.stored if isinstance(group, ClassicGroup) else group.snapshot()


def is_vacant(group: Group) -> bool:
    """Somebody asked for it and nobody joined."""
    return isinstance(group, ClassicGroup) and group.is_vacant


# -- members -------------------------------------------------------------------------------


def join(
    groups: dict[str, Group],
    request: JoinGroup,
    waiter: Waiter,
    now_ms: int,
    config: GroupConfig,
    topics: Topics,
) -> GroupResult[JoinGroupReply]:
    """JoinGroup. Whoever knows its id must be known; others may begin a group."""
    group = groups.get(request.group)
    if isinstance(group, ConsumerGroup) and group.members:
        return consumer.join(group, request, now_ms, config, topics)
    if isinstance(group, ClassicGroup):
        return classic.join(group, request, waiter, now_ms, config)
    if request.member != UNKNOWN_MEMBER:
        return GroupResult(
            answer=JoinGroupReply(error=ErrorCode.UNKNOWN_MEMBER_ID, member=request.member)
        )
    fresh = ClassicGroup(request.group)
    outcome = classic.join(fresh, request, waiter, now_ms, config)
    if not _is_let_in(outcome):
        return outcome
    groups[request.group] = fresh
    old = () if group is None else consumer.tombstones(group)
    return replace(outcome, records=(*old, *outcome.records))


def _is_let_in(outcome: GroupResult[JoinGroupReply]) -> bool:
    if outcome.answer is LATER:
        return True
    assert isinstance(outcome.answer, JoinGroupReply)
    return outcome.answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)


def sync(
    group: Group,
    request: SyncGroup,
    waiter: Waiter,
    now_ms: int,
    config: GroupConfig,
    topics: Topics,
) -> GroupResult[SyncGroupReply]:
    if isinstance(group, ClassicGroup):
        return classic.sync(group, request, waiter, now_ms, config)
    return consumer.classic_sync(group, request, now_ms, config, topics)


def heartbeat(
    group: Group, request: Heartbeat, now_ms: int, config: GroupConfig, topics: Topics
) -> GroupResult[ErrorCode]:
    if isinstance(group, ClassicGroup):
        return classic.heartbeat(group, request, now_ms, config)
    return consumer.classic_heartbeat(group, request, now_ms, config, topics)


def leave(
    group: Group, leavers: Sequence[LeavingMember], now_ms: int, config: GroupConfig, topics: Topics
) -> GroupResult[tuple[ErrorCode, tuple[LeaveResult, ...]]]:
    if isinstance(group, ClassicGroup):
        return classic.leave(group, leavers, now_ms, config)
    return consumer.classic_leave(group, leavers, now_ms, config, topics)


def on_timer(
    group: Group, key: TimerKey, now_ms: int, config: GroupConfig, topics: Topics
) -> GroupResult[None]:
    if key.kind in consumer.TIMER_KINDS:
        return consumer.on_timer(group, key, now_ms, config, topics)
    if isinstance(group, ClassicGroup):
        return classic.on_timer(group, key, now_ms, config)
    return GroupResult(answer=None)


def on_loaded(group: Group, now_ms: int, config: GroupConfig, topics: Topics) -> GroupResult[None]:
    if isinstance(group, ClassicGroup):
        return classic.on_loaded(group, now_ms, config)
    return consumer.on_loaded(group, now_ms, config, topics)


def session_timer(group: Group, member: str, config: GroupConfig) -> Sequence[SetTimer]:
    if isinstance(group, ClassicGroup):
        return classic.session_timer(group, member)
    return consumer.session_timer(group, member, config)


# -- looking and deleting ------------------------------------------------------------------


def describe(group: Group) -> DescribedGroup:
    """DescribeGroups, which knows classic groups only."""
    if isinstance(group, ClassicGroup):
        return classic.describe(group)
    return DescribedGroup(
        group=group.name,
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        message=f"group {group.name} is not of the classic protocol; ask for consumer groups",
        state=DEAD,
    )


def consumer_describe(
    name: str, group: Group | None, config: GroupConfig, topics: Topics
) -> DescribedConsumerGroup:
    """ConsumerGroupDescribe, which knows groups of the newer protocol only."""
    if isinstance(group, ConsumerGroup):
        return consumer_queries.describe(group, config, topics)
    is_missing = group is None
    return DescribedConsumerGroup(
        group=name,
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        message=f"there is no group {name}" if is_missing else f"group {name} is a classic one",
        state=DEAD,
    )


def list_group(group: Group) -> GroupListing:
    if isinstance(group, ClassicGroup):
        return classic.list_group(group)
    return consumer_queries.list_group(group)


def delete(group: Group, now_ms: int, config: GroupConfig) -> GroupResult[ErrorCode]:
    if isinstance(group, ClassicGroup):
        return classic.delete(group, now_ms, config)
    return consumer.delete(group)


def is_deserted(group: Group) -> bool:
    """Its last record may go: nobody is in it, or about to be."""
    if isinstance(group, ClassicGroup):
        is_stored = group.stored is not None
        return is_stored and not group.pending and classic.check_delete(group) is ErrorCode.NONE
    return not group.members


def tombstones(group: Group) -> Sequence[GroupRecord]:
    if isinstance(group, ClassicGroup):
        return (classic.tombstone(group),)
    return consumer.tombstones(group)


# -- offsets -------------------------------------------------------------------------------


def check_commit(
    group: Group, request: CommitOffsets, *, is_transactional: bool = False
) -> ErrorCode:
    if isinstance(group, ClassicGroup):
        return classic.check_commit(
            group,
            request.member,
            request.instance,
            request.generation,
            is_transactional=is_transactional,
        )
    return consumer_queries.check_commit(
        group,
        request.member,
        request.generation,
        knows_epochs=request.is_consumer_protocol,
        is_transactional=is_transactional,
    )


def check_fetch(group: Group | None, request: FetchOffsets) -> ErrorCode:
    if isinstance(group, ConsumerGroup):
        return consumer_queries.check_fetch(group, request.member, request.member_epoch)
    return ErrorCode.NONE


def check_delete_offsets(group: Group, topic: str) -> ErrorCode:
    if isinstance(group, ClassicGroup):
        return classic.check_delete_offsets(group, topic)
    return consumer_queries.check_delete_offsets(group, topic)


def expiry_base_ms(group: Group, topic: str, committed_ms: int) -> int | None:
    if isinstance(group, ClassicGroup):
        return classic.expiry_base_ms(group, topic, committed_ms)
    return consumer_queries.expiry_base_ms(group, topic, committed_ms)
