"""ConsumerGroupHeartbeat: a member joins, reports its subscription and partitions, gets its own.

Three steps: update the member, update the target assignment, reconcile the member with it. A change
of subscription bumps the group epoch, and a new epoch needs a new target assignment.
"""

from dataclasses import replace
from uuid import uuid4

from penstock.coordinators.group.consumer.context import REBALANCE, ConsumerCommandContext
from penstock.coordinators.group.consumer.downgrade import remove_members
from penstock.coordinators.group.consumer.members import (
    check_request,
    find_or_join,
    get_member,
    is_leaving,
)
from penstock.coordinators.group.consumer.partitions import (
    NOTHING,
    Partitions,
    from_topics,
    to_topics,
)
from penstock.coordinators.group.consumer.reconciliation import reconcile
from penstock.coordinators.group.consumer.requests import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.consumer.state import (
    ConsumerGroupState,
    ConsumerMember,
    MemberState,
    count_sent,
    count_subscription,
)
from penstock.coordinators.group.consumer.target_assignment import (
    check_assignor,
    check_pattern,
    update_target,
)
from penstock.coordinators.group.limits import LimitReached, find_limit
from penstock.coordinators.group.member_bytes import find_memory_limit
from penstock.coordinators.group.records import ConsumerMemberValue
from penstock.model.errors import ErrorCode, Refusal

WAITING_INTERVAL_MS = 500


def handle_heartbeat(
    context: ConsumerCommandContext, request: ConsumerHeartbeat
) -> ConsumerHeartbeatReply:
    """Refusal: the request changes nothing."""
    may_lack_member = request.member_epoch == JOIN_EPOCH and not request.requires_member
    if request.member == "" and may_lack_member:
        request = replace(request, member=str(uuid4()))
    check_request(request)
    check_assignor(request.assignor, context.config)
    if is_leaving(request):
        return _leave(context, request)
    return _update(context, request)


def refuse_heartbeat(refusal: Refusal) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(
        error=refusal.code, message=str(refusal), limit=find_limit(refusal)
    )


def _leave(context: ConsumerCommandContext, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    member = get_member(context.group, request.member, request.instance)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        # It keeps its partitions until its session ends, for the next member of its instance.
        context.write_current(replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NOTHING))
        context.cancel_timer(REBALANCE, member.id)
    else:
        remove_members(context, [member])
    return ConsumerHeartbeatReply(
        error=ErrorCode.NONE, member=member.id, member_epoch=request.member_epoch
    )


def _update(context: ConsumerCommandContext, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    is_member = request.member in context.group.members
    before = find_or_join(context, request)
    subscription = _updated(before.subscription, request)
    new_regex = _find_new_regex(context.group, before, subscription)
    has_changed = update_member(context, before, subscription)
    if new_regex is not None and is_member and subscription.topics == before.subscription.topics:
        has_changed = False  # nothing is to be assigned before the pattern's matches are known
    update_target(context, has_changed=has_changed, new_regex=new_regex)
    is_repeated_join = is_member and request.member_epoch == JOIN_EPOCH
    owned = None if request.owned is None or is_repeated_join else from_topics(request.owned)
    after = reconcile_member(context, before.id, owned)
    context.reset_session(after)
    sends_assignment = _is_full(request) or after.assigned != before.assigned
    return ConsumerHeartbeatReply(
        error=ErrorCode.NONE,
        member=after.id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=_interval_ms(context, after, new_regex),
        assignment=to_topics(after.assigned) if sends_assignment else None,
    )


def _find_new_regex(
    group: ConsumerGroupState, before: ConsumerMember, subscription: ConsumerMemberValue
) -> str | None:
    """The member's new pattern; None if it is the old one, or if another member has it."""
    regex = subscription.topic_regex
    if regex is None or regex == before.subscription.topic_regex or regex in group.matches:
        return None
    others = (member for member in group.members.values() if member.id != before.id)
    is_shared = any(member.subscription.topic_regex == regex for member in others)
    return None if is_shared else regex


def _interval_ms(
    context: ConsumerCommandContext, member: ConsumerMember, new_regex: str | None
) -> int:
    """A member that waits for others to revoke partitions, or for the matches of its pattern,
    comes back soon: nobody consumes those partitions meanwhile, and the broker cannot notify it."""
    interval_ms = context.config.consumer_heartbeat_interval_ms
    if member.state is MemberState.UNRELEASED_PARTITIONS or new_regex is not None:
        return min(interval_ms, WAITING_INTERVAL_MS)
    return interval_ms


def update_member(
    context: ConsumerCommandContext, before: ConsumerMember, subscription: ConsumerMemberValue
) -> bool:
    """Update the member. True if the group needs a new target assignment."""
    member = context.group.members.get(before.id)
    if member is None or member.subscription != subscription:
        _check_memory(context, before.id, subscription)
        context.write_member(before.id, subscription)
    old = before.subscription
    return (
        member is None
        or subscription.topics != old.topics
        or subscription.topic_regex != old.topic_regex
    )


def _check_memory(
    context: ConsumerCommandContext, member_id: str, subscription: ConsumerMemberValue
) -> None:
    group, config = context.group, context.config
    member = group.members.get(member_id)
    sent_bytes = count_sent(subscription)
    if sent_bytes > config.member_max_bytes:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"the subscription of member {member_id} has {sent_bytes} bytes, above "
            "group.member.max.bytes; subscribe by a pattern",
        )
    count = count_subscription(member_id, subscription)
    growth = count if member is None else count - count_subscription(member_id, member.subscription)
    limit = find_memory_limit(
        growth, group.memory_bytes, config=config, free_bytes=context.free_bytes
    )
    if limit is not None:
        raise LimitReached(
            limit, f"member {member_id} needs {growth} bytes more, which {limit} does not allow"
        )


def reconcile_member(
    context: ConsumerCommandContext, member_id: str, owned: Partitions | None
) -> ConsumerMember:
    """The member, moved as far towards its target assignment as is possible now."""
    group, member = context.group, context.group.members[member_id]
    reconciled = reconcile(
        member,
        target_epoch=group.target_epoch,
        target=group.target(member_id),
        owned=owned,
        free=lambda partitions: group.free_for(member_id, partitions),
    )
    if reconciled == member:
        return member
    context.write_current(reconciled)
    if reconciled.is_classic:
        pass  # it has to join again, and the JOIN timer bounds that
    elif reconciled.state is MemberState.UNREVOKED_PARTITIONS:
        context.set_timer(REBALANCE, reconciled.subscription.rebalance_timeout_ms, member_id)
    else:
        context.cancel_timer(REBALANCE, member_id)
    return reconciled


def _updated(subscription: ConsumerMemberValue, request: ConsumerHeartbeat) -> ConsumerMemberValue:
    changes: dict[str, object] = {
        "instance": request.instance,
        "rack": request.rack,
        "rebalance_timeout_ms": request.rebalance_timeout_ms,
        "assignor": request.assignor,
        "topics": None if request.topics is None else tuple(sorted(set(request.topics))),
    }
    reported = {name: value for name, value in changes.items() if value is not None}
    if request.topic_regex is not None:
        if request.topic_regex != subscription.topic_regex:
            check_pattern(request.topic_regex)
        reported["topic_regex"] = request.topic_regex or None
    return replace(
        subscription,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
        **reported,  # type: ignore[arg-type]
    )


def _is_full(request: ConsumerHeartbeat) -> bool:
    """A member that reports everything may not have its last assignment."""
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms is not None
        and (request.topics is not None or request.topic_regex is not None)
        and request.owned is not None
    )
