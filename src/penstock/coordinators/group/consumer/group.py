"""ConsumerGroup: the consumer group protocol (KIP-848), with classic members beside consumer ones.

Each method is a decider: the group and a request in, a CoordinatorResult out; no clock, no log, no
connection. Heartbeats, the requests of classic members and the queries have modules of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.coordinators.group.command_context import CommandEnvironment
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer import classic_members, queries
from penstock.coordinators.group.consumer.context import (
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    ConsumerCommandContext,
    session_timeout_ms,
)
from penstock.coordinators.group.consumer.downgrade import remove_members, tombstones
from penstock.coordinators.group.consumer.heartbeat import handle_heartbeat, refuse_heartbeat
from penstock.coordinators.group.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeatReply
from penstock.coordinators.group.consumer.state import (
    ConsumerGroupState,
    ConsumerMember,
    MemberState,
)
from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.group.requests import DEAD, CommitOffsets, DescribedGroup, FetchOffsets
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import CoordinatorResult, SetTimer
from penstock.model.errors import ErrorCode, Refusal


@dataclass(slots=True, kw_only=True)
class ConsumerGroup(ConsumerGroupState):
    """Implements `Group`."""

    # JoinGroup, SyncGroup, Heartbeat and LeaveGroup come from classic members.
    join = classic_members.join
    sync = classic_members.sync
    heartbeat = classic_members.heartbeat
    leave = classic_members.leave
    tombstones = tombstones
    list_group = queries.list_group
    consumer_describe = queries.describe
    check_delete_offsets = queries.check_delete_offsets
    expiry_base_ms = queries.expiry_base_ms

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, environment: CommandEnvironment
    ) -> CoordinatorResult[ConsumerHeartbeatReply, GroupRecord]:
        """ConsumerGroupHeartbeat."""
        context = ConsumerCommandContext(self, environment)
        try:
            return context.result(handle_heartbeat(context, request))
        except Refusal as refusal:
            return CoordinatorResult(reply=refuse_heartbeat(refusal))

    # -- timers ----------------------------------------------------------------------------

    def on_timer(
        self, key: TimerKey, environment: CommandEnvironment
    ) -> CoordinatorResult[None, GroupRecord]:
        context = ConsumerCommandContext(self, environment)
        member = self.members.get(key.member)
        if member is not None and _is_expired(member, key.kind):
            remove_members(context, [member])
        return context.result(None)

    def on_loaded(self, environment: CommandEnvironment) -> CoordinatorResult[None, GroupRecord]:
        context = ConsumerCommandContext(self, environment)
        for member in self.members.values():
            context.reset_session(member)
            if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                context.set_timer(REBALANCE, member.subscription.rebalance_timeout_ms, member.id)
        return context.result(None)

    def session_timer(self, member_id: str, config: GroupConfig) -> Sequence[SetTimer]:
        """A commit resets the session of a classic member; others need heartbeats."""
        member = self.members.get(member_id)
        if member is None or not member.is_classic:
            return ()
        key = TimerKey(self.name, SESSION, member_id)
        return (SetTimer(key, session_timeout_ms(member, config)),)

    # -- queries and deletion --------------------------------------------------------------

    @property
    def is_vacant(self) -> bool:
        """Never: a consumer group has a record from its first member on."""
        return False

    @property
    def is_deserted(self) -> bool:
        return not self.members

    def describe(self) -> DescribedGroup:
        return DescribedGroup(
            group=self.name,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            message=f"group {self.name} uses the consumer protocol; use ConsumerGroupDescribe",
            state=DEAD,
        )

    def delete(self, _: CommandEnvironment) -> CoordinatorResult[ErrorCode, GroupRecord]:
        if self.members:
            return CoordinatorResult(reply=ErrorCode.NON_EMPTY_GROUP)
        return CoordinatorResult(reply=ErrorCode.NONE, records=self.tombstones())

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(self, request: CommitOffsets, *, is_transactional: bool) -> ErrorCode:
        return queries.check_commit(
            self,
            request.member,
            request.generation,
            knows_epochs=request.is_consumer_protocol,
            is_transactional=is_transactional,
        )

    def check_fetch(self, request: FetchOffsets) -> ErrorCode:
        return queries.check_fetch(self, request.member, request.member_epoch)


def _is_expired(member: ConsumerMember, kind: str) -> bool:
    if kind == REBALANCE:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    return kind in (SESSION, JOIN, SYNC)
