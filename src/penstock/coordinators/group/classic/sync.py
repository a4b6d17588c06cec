"""SyncGroup to a classic group: the leader brings the assignment, all members take theirs.

Invariant: an assignment that is handed out was stored, for the generation it was made for.
"""

from collections.abc import Mapping
from typing import cast

from penstock.coordinators.group.classic.context import SYNC, ClassicCommandContext, synced
from penstock.coordinators.group.classic.rebalance import rebalance
from penstock.coordinators.group.classic.state import (
    NO_ASSIGNMENT,
    ClassicGroup,
    ClassicState,
    Member,
)
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.requests import SyncGroup, SyncGroupReply
from penstock.coordinators.group.result import GroupResult, Later
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.model.errors import ErrorCode


def sync(
    group: ClassicGroup, request: SyncGroup, waiter: Waiter, now_ms: int, config: GroupConfig
) -> GroupResult[SyncGroupReply]:
    turn = ClassicCommandContext(group, now_ms, config)
    error = _find_error(group, request)
    if error is not ErrorCode.NONE:
        return turn.outcome(SyncGroupReply(error=error))
    member = group.members[request.member]
    _note_sync(turn, member)
    turn.hear_from(member)
    if group.state is ClassicState.STABLE:
        return turn.outcome(synced(group, member.assignment))
    _wait_for_assignment(turn, member, waiter)
    if group.leader == member.id:
        _assign(turn, request.assignments)
    return turn.outcome(cast("SyncGroupReply | Later", turn.take_reply(waiter)))


def _find_error(group: ClassicGroup, request: SyncGroup) -> ErrorCode:
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


def _differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def _note_sync(turn: ClassicCommandContext, member: Member) -> None:
    turn.group.unsynced.discard(member.id)
    if not turn.group.unsynced:
        turn.cancel_timer(SYNC)


def _wait_for_assignment(turn: ClassicCommandContext, member: Member, waiter: Waiter) -> None:
    # A second request in its name: the first came over a connection that it gave up.
    turn.answer_sync(member, SyncGroupReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_waiter = waiter


def _assign(turn: ClassicCommandContext, assignments: Mapping[str, bytes]) -> None:
    """The group is stable from the record on, and no answer leaves before that is committed."""
    group = turn.group
    record = group.record(assignments, turn.now_ms)
    if not turn.fits(record):
        _give_up(turn)
        return
    turn.store(record)
    for member in group.members.values():
        if member.sync_waiter is not None:
            turn.answer_sync(member, synced(group, assignments.get(member.id, NO_ASSIGNMENT)))
            turn.hear_from(member)


def _give_up(turn: ClassicCommandContext) -> None:
    """What was assigned is larger than a record may be."""
    for member in turn.group.members.values():
        turn.answer_sync(member, SyncGroupReply(error=ErrorCode.UNKNOWN_SERVER_ERROR))
    rebalance(turn)
