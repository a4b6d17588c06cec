"""Reconciles a member with its target assignment, so that no partition ever has two owners.

The member first revokes what the target lacks, then moves to the target's epoch, then gets what
others have released. A pure function of member, target and free partitions.
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

Free = Callable[[Partitions], Partitions]  # those of them that no other member owns


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    free: Free,
) -> ConsumerMember:
    """`owned`: what the member reports to own; None: no report, so it may still own everything."""
    if member.is_reconciled(target_epoch):
        return member
    epoch = member.epoch
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(member.pending_revocation, owned):
                return member
            epoch += 1  # the smallest step that tells it from the epoch before the revocation
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise Refusal(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"member {member.id} is in a state that this broker does not know; "
                    "revoke all partitions and join again",
                )
    kept = common(member.assigned, target)
    revoked = without(member.assigned, kept)
    if revoked and _still_owns(revoked, owned):
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
    """The previous epoch advances even if the epoch stays. Otherwise a late heartbeat of an older
    epoch, from before the member owned them, would count as a revocation."""
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=MemberState.STABLE,
        pending_revocation=NOTHING,
    )


def _still_owns(revoked: Partitions, owned: Partitions | None) -> bool:
    return owned is None or overlap(owned, revoked)
