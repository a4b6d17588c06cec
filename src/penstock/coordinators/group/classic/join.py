"""JoinGroup to a classic group: who may join, under which id, and when that rebalances."""

from collections.abc import Callable
from typing import cast
from uuid import UUID, uuid4

from penstock.coordinators.group.classic.context import (
    SESSION,
    ClassicCommandContext,
    join_reply,
    member_list,
)
from penstock.coordinators.group.classic.rebalance import (
    maybe_complete_join,
    prepare_rebalance_or_complete_join,
    remove_member,
)
from penstock.coordinators.group.classic.state import ClassicGroupState, ClassicMember, ClassicState
from penstock.coordinators.group.classic.subscription import has_same_subscription
from penstock.coordinators.group.command_context import CommandEnvironment
from penstock.coordinators.group.limits import MAX_PENDING, MAX_SIZE
from penstock.coordinators.group.member_bytes import find_memory_limit
from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.group.requests import (
    UNKNOWN_MEMBER,
    JoinGroup,
    JoinGroupReply,
    SyncGroupReply,
)
from penstock.coordinators.runtime.result import LATER, CoordinatorResult, Later, Waiter
from penstock.model.errors import ErrorCode


def join_group(
    group: ClassicGroupState,
    request: JoinGroup,
    waiter: Waiter,
    environment: CommandEnvironment,
    *,
    new_id: Callable[[], UUID] = uuid4,
) -> CoordinatorResult[JoinGroupReply, GroupRecord]:
    context = ClassicCommandContext(group, environment)
    refusal = _find_refusal(context, request)
    if refusal is not None:
        return context.result(refusal)
    if request.member == UNKNOWN_MEMBER:
        reply = _join_new(context, request, waiter, new_id)
    else:
        reply = _join_existing(context, request, waiter)
    if reply is LATER:
        reply = cast("JoinGroupReply | Later", context.take_reply(waiter))
    return context.result(reply)


def _find_refusal(context: ClassicCommandContext, request: JoinGroup) -> JoinGroupReply | None:
    group, config = context.group, context.config
    timeout_ms = request.session_timeout_ms
    if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
        return _refused(request, ErrorCode.INVALID_SESSION_TIMEOUT)
    if group.state is ClassicState.DEAD:
        return _refused(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    limit = _find_limit(context, request)
    if limit is not None:
        _reject_full(context, request.member)
        return _full(limit)
    if not group.supports(request.protocol_type, request.protocols):
        return _refused(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return None


def _full(limit: str) -> JoinGroupReply:
    return JoinGroupReply(
        error=ErrorCode.GROUP_MAX_SIZE_REACHED, member=UNKNOWN_MEMBER, limit=limit
    )


def _find_limit(context: ClassicCommandContext, request: JoinGroup) -> str | None:
    """The setting that leaves no place or no memory for this member."""
    if not _has_place(context, request):
        return MAX_SIZE
    return _find_memory_limit(context, request)


def _has_place(context: ClassicCommandContext, request: JoinGroup) -> bool:
    """An existing member stays, unless group.max.size was lowered: then the first to join stay."""
    group, max_size = context.group, context.config.max_size
    member = group.members.get(_id_of(group, request))
    if group.state is ClassicState.EMPTY:
        return True
    if group.state is ClassicState.PREPARING_REBALANCE:
        return group.joining < max_size or (member is not None and member.join_waiter is not None)
    return member is not None or len(group.members) < max_size


def _find_memory_limit(context: ClassicCommandContext, request: JoinGroup) -> str | None:
    """None: the member fits into the group's memory and the coordinator's. An id that is only
    given out costs less, but its owner joins next."""
    group = context.group
    member = group.members.get(_id_of(group, request))
    now_bytes = 0 if member is None else member.charged_bytes
    return find_memory_limit(
        _member_of(request, request.member).count_bytes() - now_bytes,
        group.memory_bytes,
        config=context.config,
        free_bytes=context.free_bytes,
    )


def _id_of(group: ClassicGroupState, request: JoinGroup) -> str:
    if request.member == UNKNOWN_MEMBER and request.instance is not None:
        return group.instances.get(request.instance, UNKNOWN_MEMBER)
    return request.member


def _reject_full(context: ClassicCommandContext, member_id: str) -> None:
    group = context.group
    member = group.members.get(member_id)
    if member is not None:
        remove_member(context, member)
        maybe_complete_join(context)
    elif member_id in group.pending:
        group.pending.discard(member_id)
        context.cancel_timer(SESSION, member_id)
        maybe_complete_join(context)


# New members.


def _join_new(
    context: ClassicCommandContext, request: JoinGroup, waiter: Waiter, new_id: Callable[[], UUID]
) -> JoinGroupReply | Later:
    group = context.group
    member_id = f"{request.instance or request.client_id}-{new_id()}"
    if request.instance is not None:
        old_id = group.instances.get(request.instance)
        if old_id is not None:
            return _replace_static(context, request, waiter, group.members[old_id], member_id)
    elif request.requires_known_member:
        return _require_member_id(context, request, member_id)
    return _add(context, request, waiter, member_id)


def _require_member_id(
    context: ClassicCommandContext, request: JoinGroup, member_id: str
) -> JoinGroupReply:
    """MEMBER_ID_REQUIRED: the client joins again with this id, so that a lost reply leaves no
    member behind (KIP-394)."""
    group = context.group
    if len(group.pending) >= context.config.max_pending_members:
        return _full(MAX_PENDING)
    group.pending.add(member_id)
    context.set_timer(SESSION, request.session_timeout_ms, member_id)
    return JoinGroupReply(error=ErrorCode.MEMBER_ID_REQUIRED, member=member_id)


def _add(
    context: ClassicCommandContext, request: JoinGroup, waiter: Waiter, member_id: str
) -> Later:
    group = context.group
    if not group.members:
        group.protocol_type = request.protocol_type
    group.has_newcomers = True
    member = _member_of(request, member_id)
    member.is_new = True
    group.add(member)
    group.wait_for_generation(member, waiter)
    # It has no id for heartbeats yet, and a lost connection goes unnoticed while its request
    # waits. If the client is still there when this expires, it joins again.
    context.set_timer(SESSION, context.config.new_member_join_timeout_ms, member_id)
    _store_id(context, member)
    prepare_rebalance_or_complete_join(context, f"member {member_id} joins")
    return LATER


def _replace_static(
    context: ClassicCommandContext,
    request: JoinGroup,
    waiter: Waiter,
    old: ClassicMember,
    member_id: str,
) -> JoinGroupReply | Later:
    """The same instance under a new member id (KIP-345), which fences the old id."""
    group = context.group
    was_leader = group.leader
    can_keep_assignment = has_same_subscription(group, old, request.protocols)
    member = _swap(context, request, old, member_id)
    context.reset_session(member)
    if group.state is ClassicState.STABLE and can_keep_assignment:
        record = group.record(_assignments(group), group.state_since_ms)
        if group.elect_protocol() == group.protocol and context.fits(record):
            context.store(record)
            return _keep_generation(group, request, member, was_leader)
    group.wait_for_generation(member, waiter)
    _store_id(context, member)
    reason = f"static member {request.instance} is back as {member_id}"
    prepare_rebalance_or_complete_join(context, reason)
    return LATER


def _store_id(context: ClassicCommandContext, member: ClassicMember) -> None:
    """The coordinator may restart before the next generation is stored. If it then knew only the
    old id of a static member, it would fence the live one for good."""
    if member.instance is not None:
        record = context.group.find_id_change(member.instance, member.id)
        if record is not None and context.fits(record):
            context.store(record)


def _swap(
    context: ClassicCommandContext, request: JoinGroup, old: ClassicMember, member_id: str
) -> ClassicMember:
    group = context.group
    was_leader, was_unsynced = group.leader == old.id, old.id in group.unsynced
    fenced = ErrorCode.FENCED_INSTANCE_ID
    context.refuse_join(old, fenced, member_id=old.id)
    context.reply_to_sync(old, SyncGroupReply(error=fenced))
    context.cancel_timer(SESSION, old.id)
    group.remove(old)
    member = _member_of(request, member_id)
    member.assignment = old.assignment
    group.add(member)
    if was_leader:
        group.leader = member_id
    if was_unsynced:
        group.unsynced.add(member_id)
    return member


def _keep_generation(
    group: ClassicGroupState, request: JoinGroup, member: ClassicMember, was_leader: str | None
) -> JoinGroupReply:
    """Nothing changes for the other members. A leader must not assign again: v9 says so with
    `skip_assignment`; an older client is told that the old id still leads (KIP-814)."""
    reply = join_reply(group, member)
    if group.leader != member.id:
        return reply
    skips = request.supports_skipping_assignment
    return JoinGroupReply(
        error=reply.error,
        member=reply.member,
        generation=reply.generation,
        protocol_type=reply.protocol_type,
        protocol=reply.protocol,
        leader=member.id if skips else was_leader or "",
        skip_assignment=skips,
        members=member_list(group) if skips else (),
    )


# Existing members.


def _join_existing(
    context: ClassicCommandContext, request: JoinGroup, waiter: Waiter
) -> JoinGroupReply | Later:
    group = context.group
    if request.member in group.pending and request.instance is None:
        return _add(context, request, waiter, request.member)
    error = group.check_member(request.member, request.instance)
    if error is not ErrorCode.NONE:
        return _refused(request, error)
    member = group.members[request.member]
    if _is_current(group, member, request):
        context.reset_session(member)
        return join_reply(group, member)
    _update(context, member, request, waiter)
    prepare_rebalance_or_complete_join(context, f"member {member.id} joins again")
    return LATER


def _is_current(group: ClassicGroupState, member: ClassicMember, request: JoinGroup) -> bool:
    """The member repeats its request, perhaps because the reply was lost. The leader of a stable
    group asks for a new generation: something changed that only it can see."""
    if request.protocols != member.protocols:
        return False
    if group.state is ClassicState.COMPLETING_REBALANCE:
        return True
    return group.state is ClassicState.STABLE and group.leader != member.id


def _update(
    context: ClassicCommandContext, member: ClassicMember, request: JoinGroup, waiter: Waiter
) -> None:
    # A second request of this member: it gave up the connection of the first one.
    context.refuse_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.id)
    updated = _member_of(request, member.id)
    member.session_timeout_ms = updated.session_timeout_ms
    member.rebalance_timeout_ms = updated.rebalance_timeout_ms
    member.client_id, member.client_host = updated.client_id, updated.client_host
    context.group.set_protocols(member, updated.protocols)
    context.group.wait_for_generation(member, waiter)


def _member_of(request: JoinGroup, member_id: str) -> ClassicMember:
    rebalance_ms = request.rebalance_timeout_ms
    return ClassicMember(
        id=member_id,
        instance=request.instance,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        protocols=request.protocols,
    )


def _assignments(group: ClassicGroupState) -> dict[str, bytes]:
    return {member.id: member.assignment for member in group.members.values()}


def _refused(request: JoinGroup, error: ErrorCode) -> JoinGroupReply:
    return JoinGroupReply(error=error, member=request.member)
