"""Brings one member of a consumer group closer to its target, without two owners of a partition.

First it gives up what it shall not have, then it goes to the target's epoch, then it gets what
others have released. A pure function of member, target and what is free.
"""

from collections.abc import Callable
from dataclasses import replace

from penstock.coordinators.group.consumer.partitions import (
    NOTHING,
    Partitions,
    common,
    overlap,
    together,
    without,
)
from penstock.coordinators.group.consumer.state import ConsumerMember, MemberState
from penstock.model.errors import ErrorCode, Refusal

Free = Callable[[Partitions], Partitions]  # those of them that no other member has


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    free: Free,
) -> ConsumerMember:
    """`owned`: what the member says it has; None: it does not say, so it may have all it had."""
    if member.is_reconciled(target_epoch):
        return member
    epoch = member.epoch
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_has(member.pending_revocation, owned):
                return member
            epoch += 1  # the least that tells this from the time before the revocation
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise Refusal(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"member {member.id} is in a state that this broker does not know; "
                    "give up all partitions and join again",
                )
    kept = common(member.assigned, target)
    revoked = without(member.assigned, kept)
    if revoked and _still_has(revoked, owned):
        return _revoking(member, epoch, kept, revoked)
    missing = without(target, kept)
    gained = free(missing)
    reached = replace(_at(member, target_epoch), assigned=together(kept, gained))
    if without(missing, gained):
        return replace(reached, state=MemberState.UNRELEASED_PARTITIONS)
    return reached


def _revoking(
    member: ConsumerMember, epoch: int, kept: Partitions, revoked: Partitions
) -> ConsumerMember:
    return replace(
        _at(member, epoch),
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=kept,
        pending_revocation=revoked,
    )


def _at(member: ConsumerMember, epoch: int) -> ConsumerMember:
    """The previous epoch moves up even where the epoch stays: else a late heartbeat of an older
    one, from before the member had them, would pass for giving up partitions."""
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=MemberState.STABLE,
        pending_revocation=NOTHING,
    )


def _still_has(revoked: Partitions, owned: Partitions | None) -> bool:
    return owned is None or overlap(owned, revoked)
