"""The rebalance of a classic group: the members that join form the next generation.

Invariant: every waiter gets a reply when a phase ends, and every waiting phase has a timer.
"""

from penstock.coordinators.group.classic.context import (
    JOIN,
    SESSION,
    SYNC,
    ClassicCommandContext,
    join_reply,
)
from penstock.coordinators.group.classic.state import (
    ClassicMember,
    ClassicState,
    next_generation,
)
from penstock.coordinators.group.requests import UNKNOWN_MEMBER, SyncGroupReply
from penstock.model.errors import ErrorCode

_MIN_JOIN_PHASE_MS = 1000  # before the join phase repeats because no member came


def prepare_rebalance(context: ClassicCommandContext, reason: str) -> None:
    """Ask all members to join again. An empty group first waits for more members."""
    group = context.group
    context.note(
        "group_rebalance",
        f"group {group.name!r} prepares to rebalance: {reason}",
        generation=group.generation,
        protocol="classic",
        members=len(group.members),
        reason=reason,
    )
    is_initial = group.state is ClassicState.EMPTY
    _stop_syncing(context)
    group.enter(ClassicState.PREPARING_REBALANCE, context.now_ms)
    delay_ms = context.config.initial_rebalance_delay_ms
    if is_initial and delay_ms > 0:
        group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.has_newcomers = False
        context.set_timer(JOIN, delay_ms)
    elif is_initial or group.everyone_joined or not group.members:
        complete_join(context)
    else:
        context.set_timer(JOIN, group.rebalance_timeout_ms)


def maybe_complete_join(context: ClassicCommandContext) -> None:
    """End the join phase if all members have joined; called after a member joined or left."""
    group = context.group
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    is_initial = group.initial_left_ms is not None
    if not group.members or (group.everyone_joined and not is_initial):
        complete_join(context)


def prepare_rebalance_or_complete_join(context: ClassicCommandContext, reason: str) -> None:
    if context.group.state is ClassicState.PREPARING_REBALANCE:
        maybe_complete_join(context)
    else:
        prepare_rebalance(context, reason)


def on_join_timer(context: ClassicCommandContext) -> None:
    group = context.group
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    if group.initial_left_ms and group.has_newcomers:
        # Some joined, so others may follow: wait again, but no longer than a rebalance in total.
        delay_ms = min(context.config.initial_rebalance_delay_ms, group.initial_left_ms)
        group.initial_left_ms -= delay_ms
        group.has_newcomers = False
        context.set_timer(JOIN, delay_ms)
    else:
        complete_join(context)


def complete_join(context: ClassicCommandContext) -> None:
    """End the join phase: members that joined form the next generation, others are removed.

    Static members may be away until their session ends, so they stay. On their own they form no
    generation: then the join phase repeats.
    """
    group = context.group
    context.cancel_timer(JOIN)
    group.initial_left_ms = None
    absent = [member for member in group.members.values() if member.join_waiter is None]
    for member in absent:
        if member.instance is None:
            remove_member(context, member)
    if not group.members:
        context.store(group.empty_record(context.now_ms))
    elif any(group.waiting_to_join()):
        _begin_generation(context)
    else:
        context.set_timer(JOIN, max(group.rebalance_timeout_ms, _MIN_JOIN_PHASE_MS))


def remove_member(context: ClassicCommandContext, member: ClassicMember) -> None:
    """Pending requests of the member get UNKNOWN_MEMBER_ID."""
    context.refuse_join(member, ErrorCode.UNKNOWN_MEMBER_ID, member_id=UNKNOWN_MEMBER)
    context.reply_to_sync(member, SyncGroupReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
    context.cancel_timer(SESSION, member.id)
    context.group.remove(member)


def _begin_generation(context: ClassicCommandContext) -> None:
    group = context.group
    _elect_joined_leader(context)
    group.generation = next_generation(group.generation)
    group.protocol = group.elect_protocol()
    group.enter(ClassicState.COMPLETING_REBALANCE, context.now_ms)
    for member in group.members.values():
        context.reply_to_join(member, join_reply(group, member))
        context.reset_session(member)
        member.is_new = False
    context.note(
        "group_generation",
        f"group {group.name!r} has generation {group.generation}",
        generation=group.generation,
        members=len(group.members),
        protocol_name=group.protocol,
    )
    group.unsynced = set(group.members)
    context.set_timer(SYNC, group.rebalance_timeout_ms)


def _elect_joined_leader(context: ClassicCommandContext) -> None:
    group = context.group
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join_waiter is None:
        group.leader = next(group.waiting_to_join()).id


def _stop_syncing(context: ClassicCommandContext) -> None:
    group = context.group
    for member in group.members.values():
        if member.sync_waiter is not None:
            context.reply_to_sync(member, SyncGroupReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
            context.reset_session(member)
    group.unsynced.clear()
    context.cancel_timer(SYNC)
