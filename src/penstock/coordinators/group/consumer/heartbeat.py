"""ConsumerGroupHeartbeat: a member joins, says what it wants and has, and hears what it shall have.

Three steps: the member and its subscription, the target of the group, the member's way to it. A
change of the first bumps the group's epoch, a new epoch asks for a new target.
"""

from dataclasses import replace

from penstock.coordinators.group.consumer.context import REBALANCE, ConsumerCommandContext
from penstock.coordinators.group.consumer.members import find_or_join
from penstock.coordinators.group.consumer.partitions import Partitions, from_topics, to_topics
from penstock.coordinators.group.consumer.reconciliation import reconcile
from penstock.coordinators.group.consumer.requests import (
    JOIN_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.consumer.state import ConsumerMember, MemberState
from penstock.coordinators.group.consumer.target_assignment import check_pattern, update_target
from penstock.coordinators.group.records import ConsumerMemberValue
from penstock.model.errors import ErrorCode

WAITING_INTERVAL_MS = 500


def beat(turn: ConsumerCommandContext, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    """Refusal: nothing of it counts."""
    is_known = request.member in turn.group.members
    before = find_or_join(turn, request)
    subscription = _updated(before.subscription, request)
    has_changed = update_member(turn, before, subscription)
    update_target(turn, has_changed=has_changed)
    is_late_or_again = is_known and request.member_epoch == JOIN_EPOCH
    owned = None if request.owned is None or is_late_or_again else from_topics(request.owned)
    after = advance(turn, before.id, owned)
    turn.hear_from(after)
    is_told = _is_full(request) or after.assigned != before.assigned
    return ConsumerHeartbeatReply(
        error=ErrorCode.NONE,
        member=after.id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=_interval_ms(turn, after),
        assignment=to_topics(after.assigned) if is_told else None,
    )


def _interval_ms(turn: ConsumerCommandContext, member: ConsumerMember) -> int:
    """One that waits for others to give up partitions comes back soon: they are worked on by
    nobody, and it cannot be told."""
    interval_ms = turn.config.consumer_heartbeat_interval_ms
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return min(interval_ms, WAITING_INTERVAL_MS)
    return interval_ms


def update_member(
    turn: ConsumerCommandContext, before: ConsumerMember, subscription: ConsumerMemberValue
) -> bool:
    """Whether the group has to be assigned anew for it."""
    known = turn.group.members.get(before.id)
    if known is None or known.subscription != subscription:
        turn.write_member(before.id, subscription)
    old = before.subscription
    return (
        known is None
        or subscription.topics != old.topics
        or subscription.topic_regex != old.topic_regex
    )


def advance(
    turn: ConsumerCommandContext, member_id: str, owned: Partitions | None
) -> ConsumerMember:
    """The member, as far on its way to the target as it may be now."""
    group, member = turn.group, turn.group.members[member_id]
    moved = reconcile(
        member,
        target_epoch=group.target_epoch,
        target=group.target(member_id),
        owned=owned,
        free=lambda wanted: group.free_for(member_id, wanted),
    )
    if moved == member:
        return member
    turn.write_current(moved)
    if moved.is_classic:
        pass  # it is called to join again, and has until then
    elif moved.state is MemberState.UNREVOKED_PARTITIONS:
        turn.set_timer(REBALANCE, moved.subscription.rebalance_timeout_ms, member_id)
    else:
        turn.cancel_timer(REBALANCE, member_id)
    return moved


def _updated(known: ConsumerMemberValue, request: ConsumerHeartbeat) -> ConsumerMemberValue:
    changes: dict[str, object] = {
        "instance": request.instance,
        "rack": request.rack,
        "rebalance_timeout_ms": request.rebalance_timeout_ms,
        "assignor": request.assignor,
        "topics": None if request.topics is None else tuple(sorted(set(request.topics))),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if request.topic_regex is not None:
        if request.topic_regex != known.topic_regex:
            check_pattern(request.topic_regex)
        given["topic_regex"] = request.topic_regex or None
    return replace(
        known,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
        **given,  # type: ignore[arg-type]
    )


def _is_full(request: ConsumerHeartbeat) -> bool:
    """A member that says everything may not know what it was told last."""
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms is not None
        and (request.topics is not None or request.topic_regex is not None)
        and request.owned is not None
    )
