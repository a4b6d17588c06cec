"""How a classic group goes from one generation to the next: all are called, those who come count.

Invariant: whoever waits when a phase ends is answered, and every phase that waits has a timer.
"""

from penstock.coordinators.group.classic.context import (
    JOIN,
    SESSION,
    SYNC,
    ClassicCommandContext,
    joined,
)
from penstock.coordinators.group.classic.state import ClassicState, Member, next_generation
from penstock.coordinators.group.requests import UNKNOWN_MEMBER, SyncGroupReply
from penstock.model.errors import ErrorCode

_LEAST_CALL_MS = 1000  # before those are called again of whom nobody came


def rebalance(turn: ClassicCommandContext) -> None:
    """Calls all members to join again. The first members of a group are waited for a moment."""
    group = turn.group
    is_initial = group.state is ClassicState.EMPTY
    _stop_syncing(turn)
    group.enter(ClassicState.PREPARING_REBALANCE, turn.now_ms)
    delay_ms = turn.config.initial_rebalance_delay_ms
    if is_initial and delay_ms > 0:
        group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.has_newcomers = False
        turn.set_timer(JOIN, delay_ms)
    elif is_initial or group.everyone_joined or not group.members:
        complete_join(turn)
    else:
        turn.set_timer(JOIN, group.rebalance_timeout_ms)


def go_on(turn: ClassicCommandContext) -> None:
    """After a member came or went while members are called: ends the phase if all are there."""
    group = turn.group
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    is_initial = group.initial_left_ms is not None
    if not group.members or (group.everyone_joined and not is_initial):
        complete_join(turn)


def rebalance_or_go_on(turn: ClassicCommandContext) -> None:
    if turn.group.state is ClassicState.PREPARING_REBALANCE:
        go_on(turn)
    else:
        rebalance(turn)


def on_join_timer(turn: ClassicCommandContext) -> None:
    group = turn.group
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    if group.initial_left_ms and group.has_newcomers:
        # Where some came others follow: wait again, though no longer than a rebalance may take.
        delay_ms = min(turn.config.initial_rebalance_delay_ms, group.initial_left_ms)
        group.initial_left_ms -= delay_ms
        group.has_newcomers = False
        turn.set_timer(JOIN, delay_ms)
    else:
        complete_join(turn)


def complete_join(turn: ClassicCommandContext) -> None:
    """Ends the call: those who came are the next generation, the others are out.

    Static members may be away until their session ends, so they stay, but alone they are no
    generation: then the call goes on.
    """
    group = turn.group
    turn.cancel_timer(JOIN)
    group.initial_left_ms = None
    for member in [each for each in group.members.values() if each.join_waiter is None]:
        if member.instance is None:
            expel(turn, member)
    if not group.members:
        turn.store(group.empty_record(turn.now_ms))
    elif any(group.waiting_to_join()):
        _begin_generation(turn)
    else:
        turn.set_timer(JOIN, max(group.rebalance_timeout_ms, _LEAST_CALL_MS))


def expel(turn: ClassicCommandContext, member: Member) -> None:
    """Takes a member out; whoever still waits in its name learns that it is unknown now."""
    turn.refuse_join(member, ErrorCode.UNKNOWN_MEMBER_ID, member_id=UNKNOWN_MEMBER)
    turn.answer_sync(member, SyncGroupReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
    turn.cancel_timer(SESSION, member.id)
    turn.group.remove(member)


def _begin_generation(turn: ClassicCommandContext) -> None:
    group = turn.group
    _elect_leader_who_came(turn)
    group.generation = next_generation(group.generation)
    group.protocol = group.elect_protocol()
    group.enter(ClassicState.COMPLETING_REBALANCE, turn.now_ms)
    for member in group.members.values():
        turn.answer_join(member, joined(group, member))
        turn.hear_from(member)
        member.is_new = False
    group.unsynced = set(group.members)
    turn.set_timer(SYNC, group.rebalance_timeout_ms)


def _elect_leader_who_came(turn: ClassicCommandContext) -> None:
    group = turn.group
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join_waiter is None:
        group.leader = next(group.waiting_to_join()).id


def _stop_syncing(turn: ClassicCommandContext) -> None:
    group = turn.group
    for member in group.members.values():
        if member.sync_waiter is not None:
            turn.answer_sync(member, SyncGroupReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
            turn.hear_from(member)
    group.unsynced.clear()
    turn.cancel_timer(SYNC)
