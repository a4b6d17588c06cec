"""ClassicGroup: the classic group protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

Each method is a decider: the group and a request in, a CoordinatorResult out; no clock, no log, no
connection. Joining, syncing and the queries have modules of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.coordinators.group.classic import queries
from penstock.coordinators.group.classic.context import (
    DOWNGRADED,
    JOIN,
    SESSION,
    SYNC,
    ClassicCommandContext,
)
from penstock.coordinators.group.classic.join import join_group
from penstock.coordinators.group.classic.rebalance import (
    maybe_complete_join,
    on_join_timer,
    prepare_rebalance,
    prepare_rebalance_or_complete_join,
    remove_member,
)
from penstock.coordinators.group.classic.state import ClassicGroupState, ClassicState
from penstock.coordinators.group.classic.sync import sync_group
from penstock.coordinators.group.command_context import CommandEnvironment, describe_members
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.requests import DescribedConsumerGroup
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import GroupKey, GroupRecord
from penstock.coordinators.group.requests import (
    DEAD,
    UNKNOWN_MEMBER,
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    LeaveResult,
    LeavingMember,
    SyncGroupReply,
)
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import CoordinatorResult, SetTimer, Waiter
from penstock.model.errors import ErrorCode


@dataclass(slots=True, eq=False)
class ClassicGroup(ClassicGroupState):
    """Implements `Group`."""

    join = join_group
    sync = sync_group
    describe = queries.describe
    list_group = queries.list_group
    check_delete = queries.check_delete
    check_delete_offsets = queries.check_delete_offsets
    expiry_base_ms = queries.expiry_base_ms

    def heartbeat(
        self, request: Heartbeat, environment: CommandEnvironment
    ) -> CoordinatorResult[ErrorCode, GroupRecord]:
        context = ClassicCommandContext(self, environment)
        if self.state is ClassicState.DEAD:
            return context.result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        error = self.check_member(request.member, request.instance)
        if error is not ErrorCode.NONE:
            return context.result(error)
        if request.generation != self.generation:
            return context.result(ErrorCode.ILLEGAL_GENERATION)
        context.reset_session(self.members[request.member])
        if self.state is ClassicState.PREPARING_REBALANCE:
            return context.result(ErrorCode.REBALANCE_IN_PROGRESS)
        return context.result(ErrorCode.NONE)

    def leave(
        self, leavers: Sequence[LeavingMember], environment: CommandEnvironment
    ) -> CoordinatorResult[tuple[ErrorCode, tuple[LeaveResult, ...]], GroupRecord]:
        """Remove all of them, then rebalance the rest of the group once."""
        context = ClassicCommandContext(self, environment)
        if self.state is ClassicState.DEAD:
            return context.result((ErrorCode.COORDINATOR_NOT_AVAILABLE, ()))
        before = tuple(self.members)
        results = tuple(
            LeaveResult(member.member, member.instance, _remove_leaving(context, member))
            for member in leavers
        )
        gone = [member_id for member_id in before if member_id not in self.members]
        if gone:
            prepare_rebalance_or_complete_join(context, f"{describe_members(gone)} left")
        else:
            maybe_complete_join(context)
        return context.result((ErrorCode.NONE, results))

    def abandon_join(
        self, waiter: Waiter, environment: CommandEnvironment
    ) -> CoordinatorResult[None, GroupRecord]:
        """The connection of a waiting join has closed. A member that was never in a generation is
        removed; any other may come back on another connection until its session ends."""
        context = ClassicCommandContext(self, environment)
        member = self.members.get(self.join_waiters.get(waiter, ""))
        if member is not None and member.is_new:
            remove_member(context, member)
            if self.members or self.stored is not None:
                reason = f"member {member.id} closed its connection while joining"
                prepare_rebalance_or_complete_join(context, reason)
            else:
                self._begin_again(context)
        return context.result(None)

    def _begin_again(self, context: ClassicCommandContext) -> None:
        """Nobody was ever in a generation, so there is nothing to store."""
        context.cancel_timer(JOIN)
        self.initial_left_ms = None
        self.enter(ClassicState.EMPTY, context.now_ms)

    def abandon_pending(
        self, member_id: str, environment: CommandEnvironment
    ) -> CoordinatorResult[None, GroupRecord]:
        """The connection that was told MEMBER_ID_REQUIRED has closed."""
        context = ClassicCommandContext(self, environment)
        if member_id in self.pending:
            _drop_pending(context, member_id)
            maybe_complete_join(context)
        return context.result(None)

    # -- timers ----------------------------------------------------------------------------

    def on_timer(
        self, key: TimerKey, environment: CommandEnvironment
    ) -> CoordinatorResult[None, GroupRecord]:
        context = ClassicCommandContext(self, environment)
        if key.kind == SESSION:
            _expire_session(context, key.member)
        elif key.kind == JOIN:
            on_join_timer(context)
        elif key.kind == SYNC:
            _expire_unsynced(context)
        elif key.kind == DOWNGRADED and self.state is ClassicState.STABLE:
            # The partitions of the member that left belong to nobody until the next generation.
            prepare_rebalance(context, "the group was downgraded to the classic protocol")
        return context.result(None)

    def on_loaded(self, environment: CommandEnvironment) -> CoordinatorResult[None, GroupRecord]:
        context = ClassicCommandContext(self, environment)
        for member in self.members.values():
            context.reset_session(member)
        if len(self.members) > environment.config.max_size:
            prepare_rebalance(context, "the loaded group is above group.max.size")
        return context.result(None)

    def session_timer(self, member_id: str, _: GroupConfig) -> Sequence[SetTimer]:
        """A commit resets the session as a heartbeat does."""
        member = self.members.get(member_id)
        if member is None:
            return ()
        return (SetTimer(TimerKey(self.name, SESSION, member_id), member.session_timeout_ms),)

    def topics_changed(self) -> None:
        """No effect: the group's leader assigns partitions and watches the topics itself."""

    # -- queries and deletion --------------------------------------------------------------

    @property
    def is_deserted(self) -> bool:
        is_stored = self.stored is not None
        return is_stored and not self.pending and self.check_delete() is ErrorCode.NONE

    def snapshot(self) -> object | None:
        return self.stored

    def consumer_describe(self, _: GroupConfig, __: Topics) -> DescribedConsumerGroup:
        return DescribedConsumerGroup(
            group=self.name,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            message=f"group {self.name} uses the classic protocol",
            state=DEAD,
        )

    def delete(self, environment: CommandEnvironment) -> CoordinatorResult[ErrorCode, GroupRecord]:
        error = self.check_delete()
        context = ClassicCommandContext(self, environment)
        if error is ErrorCode.NONE:
            for member_id in self.pending:
                context.cancel_timer(SESSION, member_id)
            for record in self.tombstones():
                context.store(record)
        return context.result(error)

    def tombstones(self) -> Sequence[GroupRecord]:
        return (GroupRecord(GroupKey(self.name), None),)

    def release(
        self, error: ErrorCode, environment: CommandEnvironment
    ) -> CoordinatorResult[None, GroupRecord]:
        """Reply to every waiter and stop all timers, because a consumer group replaces this one."""
        context = ClassicCommandContext(self, environment)
        for member in self.members.values():
            context.refuse_join(member, error, member_id=member.id)
            context.reply_to_sync(member, SyncGroupReply(error=error))
            context.cancel_timer(SESSION, member.id)
        for member_id in self.pending:
            context.cancel_timer(SESSION, member_id)
        context.cancel_timer(JOIN)
        context.cancel_timer(SYNC)
        self.enter(ClassicState.DEAD, environment.now_ms)
        return context.result(None)

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(self, request: CommitOffsets, *, is_transactional: bool) -> ErrorCode:
        return queries.check_commit(
            self,
            request.member,
            request.instance,
            request.generation,
            is_transactional=is_transactional,
        )

    def check_fetch(self, _: FetchOffsets) -> ErrorCode:
        """Any client may fetch."""
        return ErrorCode.NONE


def _remove_leaving(context: ClassicCommandContext, leaver: LeavingMember) -> ErrorCode:
    group = context.group
    if leaver.member in group.pending:
        _drop_pending(context, leaver.member)
        return ErrorCode.NONE
    member_id = leaver.member
    if member_id == UNKNOWN_MEMBER and leaver.instance is not None:
        # An operator removes a static member, whatever its id is now.
        member_id = group.instances.get(leaver.instance, UNKNOWN_MEMBER)
    error = group.check_member(member_id, leaver.instance)
    if error is ErrorCode.NONE:
        remove_member(context, group.members[member_id])
    return error


def _expire_session(context: ClassicCommandContext, member_id: str) -> None:
    group = context.group
    member = group.members.get(member_id)
    if member_id in group.pending:
        _drop_pending(context, member_id)
        maybe_complete_join(context)
    elif member is not None and not member.is_waiting:
        remove_member(context, member)
        prepare_rebalance_or_complete_join(context, f"the session of member {member_id} expired")


def _expire_unsynced(context: ClassicCommandContext) -> None:
    """Removes members that joined the generation but never synced."""
    group = context.group
    missing = [group.members[member_id] for member_id in group.unsynced]
    for member in missing:
        remove_member(context, member)
    if missing:
        prepare_rebalance(context, f"{len(missing)} members did not sync in time")


def _drop_pending(context: ClassicCommandContext, member_id: str) -> None:
    context.group.pending.discard(member_id)
    context.cancel_timer(SESSION, member_id)
