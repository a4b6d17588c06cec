"""SyncGroup to a classic group: the leader sends the assignment, every member gets its part.

Invariant: an assignment is sent to members only after it was stored, for the generation it was made
for.
"""

from collections.abc import Mapping
from typing import cast

from penstock.coordinators.group.classic.context import SYNC, ClassicCommandContext, sync_reply
from penstock.coordinators.group.classic.rebalance import prepare_rebalance
from penstock.coordinators.group.classic.state import (
    NO_ASSIGNMENT,
    ClassicGroupState,
    ClassicMember,
    ClassicState,
)
from penstock.coordinators.group.command_context import CommandEnvironment
from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.group.requests import SyncGroup, SyncGroupReply
from penstock.coordinators.runtime.result import CoordinatorResult, Later, Waiter
from penstock.model.errors import ErrorCode


def sync_group(
    group: ClassicGroupState, request: SyncGroup, waiter: Waiter, environment: CommandEnvironment
) -> CoordinatorResult[SyncGroupReply, GroupRecord]:
    context = ClassicCommandContext(group, environment)
    error = _find_error(group, request)
    if error is not ErrorCode.NONE:
        return context.result(SyncGroupReply(error=error))
    member = group.members[request.member]
    _note_sync(context, member)
    context.reset_session(member)
    if group.state is ClassicState.STABLE:
        return context.result(sync_reply(group, member.assignment))
    _wait_for_assignment(context, member, waiter)
    if group.leader == member.id:
        _assign(context, request.assignments)
    return context.result(cast("SyncGroupReply | Later", context.take_reply(waiter)))


def _find_error(group: ClassicGroupState, request: SyncGroup) -> ErrorCode:
    if group.state is ClassicState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member, request.instance)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if _differs(request.protocol, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current


def _note_sync(context: ClassicCommandContext, member: ClassicMember) -> None:
    context.group.unsynced.discard(member.id)
    if not context.group.unsynced:
        context.cancel_timer(SYNC)


def _wait_for_assignment(
    context: ClassicCommandContext, member: ClassicMember, waiter: Waiter
) -> None:
    # A second request of this member: it gave up the connection of the first one.
    context.reply_to_sync(member, SyncGroupReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_waiter = waiter


def _assign(context: ClassicCommandContext, assignments: Mapping[str, bytes]) -> None:
    """Replaying the record makes the group stable; no reply leaves before it is committed."""
    group = context.group
    record = group.record(assignments, context.now_ms)
    if not context.fits(record):
        _reject_assignment(context)
        return
    context.store(record)
    for member in group.members.values():
        if member.sync_waiter is not None:
            context.reply_to_sync(
                member, sync_reply(group, assignments.get(member.id, NO_ASSIGNMENT))
            )
            context.reset_session(member)


def _reject_assignment(context: ClassicCommandContext) -> None:
    """The assignment is larger than a record may be."""
    for member in context.group.members.values():
        context.reply_to_sync(member, SyncGroupReply(error=ErrorCode.UNKNOWN_SERVER_ERROR))
    prepare_rebalance(context, "the assignment does not fit into a record")
