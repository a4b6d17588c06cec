"""The context of one command to a classic group, and the replies to its members."""

from penstock.coordinators.group.classic.state import ClassicGroupState, ClassicMember, ClassicState
from penstock.coordinators.group.command_context import CommandEnvironment, GroupCommandContext
from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.group.requests import JoinGroupMember, JoinGroupReply, SyncGroupReply
from penstock.coordinators.runtime.result import LATER, DeferredReply, Waiter
from penstock.model.errors import ErrorCode

# Kinds of timers.
SESSION = "session"  # per member: no heartbeat
JOIN = "join"  # per group: members that have not joined the rebalance
SYNC = "sync"  # per group: members that joined but have not synced
DOWNGRADED = "consumer-downgraded"  # at once after a downgrade: the group rebalances


class ClassicCommandContext(GroupCommandContext):
    def __init__(self, group: ClassicGroupState, environment: CommandEnvironment) -> None:
        super().__init__(group.name, environment)
        self.group = group

    def take_reply(self, waiter: Waiter) -> object:
        """The reply to the command itself if it has been decided already, or LATER."""
        for index, deferred in enumerate(self._replies):
            if deferred.waiter == waiter:
                del self._replies[index]
                return deferred.reply
        return LATER

    def store(self, record: GroupRecord) -> None:
        self._records.append(record)

    def reset_session(self, member: ClassicMember) -> None:
        self.set_timer(SESSION, member.session_timeout_ms, member.id)

    def reply_to_join(self, member: ClassicMember, reply: JoinGroupReply) -> None:
        waiter = self.group.take_join_waiter(member)
        if waiter is not None:
            self._replies.append(DeferredReply(waiter, reply))

    def refuse_join(self, member: ClassicMember, error: ErrorCode, *, member_id: str) -> None:
        self.reply_to_join(member, JoinGroupReply(error=error, member=member_id))

    def reply_to_sync(self, member: ClassicMember, reply: SyncGroupReply) -> None:
        if member.sync_waiter is not None:
            self._replies.append(DeferredReply(member.sync_waiter, reply))
            member.sync_waiter = None


def join_reply(group: ClassicGroupState, member: ClassicMember) -> JoinGroupReply:
    """The current generation; only the leader gets the member list."""
    is_leader = group.leader == member.id
    return JoinGroupReply(
        error=ErrorCode.NONE,
        member=member.id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or "",
        members=member_list(group) if is_leader else (),
    )


def member_list(group: ClassicGroupState) -> tuple[JoinGroupMember, ...]:
    assert group.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
    return tuple(
        JoinGroupMember(member.id, member.instance, member.find_metadata(group.protocol) or b"")
        for member in group.members.values()
    )


def sync_reply(group: ClassicGroupState, assignment: bytes) -> SyncGroupReply:
    return SyncGroupReply(
        error=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        assignment=assignment,
    )
