"""JoinGroup to a classic group: who may come in, under which id, and what its coming sets off."""

from collections.abc import Callable
from typing import cast
from uuid import UUID, uuid4

from penstock.coordinators.group.classic.context import SESSION, ClassicCommandContext, joined, roll
from penstock.coordinators.group.classic.rebalance import expel, go_on, rebalance_or_go_on
from penstock.coordinators.group.classic.state import ClassicGroup, ClassicState, Member
from penstock.coordinators.group.classic.subscription import wants_the_same
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.requests import (
    UNKNOWN_MEMBER,
    JoinGroup,
    JoinGroupReply,
    SyncGroupReply,
)
from penstock.coordinators.group.result import LATER, GroupResult, Later
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.model.errors import ErrorCode


def join(
    group: ClassicGroup,
    request: JoinGroup,
    waiter: Waiter,
    now_ms: int,
    config: GroupConfig,
    *,
    new_id: Callable[[], UUID] = uuid4,
) -> GroupResult[JoinGroupReply]:
    turn = ClassicCommandContext(group, now_ms, config)
    refusal = _find_refusal(turn, request)
    if refusal is not None:
        return turn.outcome(refusal)
    if request.member == UNKNOWN_MEMBER:
        answer = _join_new(turn, request, waiter, new_id)
    else:
        answer = _join_known(turn, request, waiter)
    if answer is LATER:
        answer = cast("JoinGroupReply | Later", turn.take_reply(waiter))
    return turn.outcome(answer)


def _find_refusal(turn: ClassicCommandContext, request: JoinGroup) -> JoinGroupReply | None:
    group, config = turn.group, turn.config
    timeout_ms = request.session_timeout_ms
    if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
        return _refused(request, ErrorCode.INVALID_SESSION_TIMEOUT)
    if group.state is ClassicState.DEAD:
        return _refused(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not _has_room(turn, request):
        _turn_away(turn, request.member)
        return JoinGroupReply(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member=UNKNOWN_MEMBER)
    if not group.supports(request.protocol_type, request.protocols):
        return _refused(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return None


def _has_room(turn: ClassicCommandContext, request: JoinGroup) -> bool:
    """A member that is in already stays in, unless the limit fell: then the first to come do."""
    group, max_size = turn.group, turn.config.max_size
    member = group.members.get(_id_of(group, request))
    if group.state is ClassicState.EMPTY:
        return True
    if group.state is ClassicState.PREPARING_REBALANCE:
        return group.joining < max_size or (member is not None and member.join_waiter is not None)
    return member is not None or len(group.members) < max_size


def _id_of(group: ClassicGroup, request: JoinGroup) -> str:
    if request.member == UNKNOWN_MEMBER and request.instance is not None:
        return group.instances.get(request.instance, UNKNOWN_MEMBER)
    return request.member


def _turn_away(turn: ClassicCommandContext, member_id: str) -> None:
    group = turn.group
    member = group.members.get(member_id)
    if member is not None:
        expel(turn, member)
        go_on(turn)
    elif member_id in group.pending:
        group.pending.discard(member_id)
        turn.cancel_timer(SESSION, member_id)
        go_on(turn)


# New members.


def _join_new(
    turn: ClassicCommandContext, request: JoinGroup, waiter: Waiter, new_id: Callable[[], UUID]
) -> JoinGroupReply | Later:
    group = turn.group
    member_id = f"{request.instance or request.client_id}-{new_id()}"
    if request.instance is not None:
        known = group.instances.get(request.instance)
        if known is not None:
            return _replace_static(turn, request, waiter, group.members[known], member_id)
    elif request.requires_known_member:
        return _hand_out(turn, request, member_id)
    return _add(turn, request, waiter, member_id)


def _hand_out(turn: ClassicCommandContext, request: JoinGroup, member_id: str) -> JoinGroupReply:
    """Gives an id to come back with, so that a lost answer leaves no member behind (KIP-394)."""
    group = turn.group
    if len(group.pending) >= turn.config.max_pending_members:
        return JoinGroupReply(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member=UNKNOWN_MEMBER)
    group.pending.add(member_id)
    turn.set_timer(SESSION, request.session_timeout_ms, member_id)
    return JoinGroupReply(error=ErrorCode.MEMBER_ID_REQUIRED, member=member_id)


def _add(turn: ClassicCommandContext, request: JoinGroup, waiter: Waiter, member_id: str) -> Later:
    group = turn.group
    if not group.members:
        group.protocol_type = request.protocol_type
    group.has_newcomers = True
    member = _member_of(request, member_id)
    member.is_new = True
    group.add(member)
    group.wait_for_generation(member, waiter)
    # It has no id to send heartbeats with yet, and a lost connection does not show while its
    # request waits. If it is there still, it will try again.
    turn.set_timer(SESSION, turn.config.new_member_join_timeout_ms, member_id)
    _store_id(turn, member)
    rebalance_or_go_on(turn)
    return LATER


def _replace_static(
    turn: ClassicCommandContext, request: JoinGroup, waiter: Waiter, old: Member, member_id: str
) -> JoinGroupReply | Later:
    """The same instance under a new id (KIP-345): whoever holds the old one is fenced."""
    group = turn.group
    was_leader = group.leader
    wants_the_same_still = wants_the_same(group, old, request.protocols)
    member = _swap(turn, request, old, member_id)
    turn.hear_from(member)
    if group.state is ClassicState.STABLE and wants_the_same_still:
        record = group.record(_assignments(group), group.state_since_ms)
        if group.elect_protocol() == group.protocol and turn.fits(record):
            turn.store(record)
            return _back_again(group, request, member, was_leader)
    group.wait_for_generation(member, waiter)
    _store_id(turn, member)
    rebalance_or_go_on(turn)
    return LATER


def _store_id(turn: ClassicCommandContext, member: Member) -> None:
    """Before the next generation is stored the coordinator may be restarted. If it knew the old
    id of a static member only, it would fence the one that lives, for good."""
    if member.instance is not None:
        record = turn.group.find_renaming(member.instance, member.id)
        if record is not None and turn.fits(record):
            turn.store(record)


def _swap(turn: ClassicCommandContext, request: JoinGroup, old: Member, member_id: str) -> Member:
    group = turn.group
    was_leader, was_unsynced = group.leader == old.id, old.id in group.unsynced
    fenced = ErrorCode.FENCED_INSTANCE_ID
    turn.refuse_join(old, fenced, member_id=old.id)
    turn.answer_sync(old, SyncGroupReply(error=fenced))
    turn.cancel_timer(SESSION, old.id)
    group.remove(old)
    member = _member_of(request, member_id)
    member.assignment = old.assignment
    group.add(member)
    if was_leader:
        group.leader = member_id
    if was_unsynced:
        group.unsynced.add(member_id)
    return member


def _back_again(
    group: ClassicGroup, request: JoinGroup, member: Member, was_leader: str | None
) -> JoinGroupReply:
    """Nothing changes for the others. A leader must not assign again: it is told so, or, where
    its client does not know that (before v9), it is told that the old id leads (KIP-814)."""
    answer = joined(group, member)
    if group.leader != member.id:
        return answer
    skips = request.supports_skipping_assignment
    return JoinGroupReply(
        error=answer.error,
        member=answer.member,
        generation=answer.generation,
        protocol_type=answer.protocol_type,
        protocol=answer.protocol,
        leader=member.id if skips else was_leader or "",
        skip_assignment=skips,
        members=roll(group) if skips else (),
    )


# Known members.


def _join_known(
    turn: ClassicCommandContext, request: JoinGroup, waiter: Waiter
) -> JoinGroupReply | Later:
    group = turn.group
    if request.member in group.pending and request.instance is None:
        return _add(turn, request, waiter, request.member)
    error = group.check_member(request.member, request.instance)
    if error is not ErrorCode.NONE:
        return _refused(request, error)
    member = group.members[request.member]
    if _is_current(group, member, request):
        turn.hear_from(member)
        return joined(group, member)
    _update(turn, member, request, waiter)
    rebalance_or_go_on(turn)
    return LATER


def _is_current(group: ClassicGroup, member: Member, request: JoinGroup) -> bool:
    """It asks for what it was told already, perhaps because that answer was lost. A leader of a
    stable group asks for a new generation: something changed that only it can see."""
    if request.protocols != member.protocols:
        return False
    if group.state is ClassicState.COMPLETING_REBALANCE:
        return True
    return group.state is ClassicState.STABLE and group.leader != member.id


def _update(
    turn: ClassicCommandContext, member: Member, request: JoinGroup, waiter: Waiter
) -> None:
    # A second request in its name: the first came over a connection that it gave up.
    turn.refuse_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.id)
    fresh = _member_of(request, member.id)
    turn.group.set_protocols(member, fresh.protocols)
    member.session_timeout_ms = fresh.session_timeout_ms
    member.rebalance_timeout_ms = fresh.rebalance_timeout_ms
    member.client_id, member.client_host = fresh.client_id, fresh.client_host
    turn.group.wait_for_generation(member, waiter)


def _member_of(request: JoinGroup, member_id: str) -> Member:
    rebalance_ms = request.rebalance_timeout_ms
    return Member(
        id=member_id,
        instance=request.instance,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        protocols=request.protocols,
    )


def _assignments(group: ClassicGroup) -> dict[str, bytes]:
    return {each.id: each.assignment for each in group.members.values()}


def _refused(request: JoinGroup, error: ErrorCode) -> JoinGroupReply:
    return JoinGroupReply(error=error, member=request.member)
