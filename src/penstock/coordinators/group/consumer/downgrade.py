"""Removes members; when the last consumer member goes, downgrades the group to a classic one.

One batch holds the tombstones of the old group and the record of the new one, whose generation is
the epoch that its members know.
"""

from collections.abc import Iterable, Sequence

from penstock.coordinators.group.classic.context import DOWNGRADED
from penstock.coordinators.group.classic.context import SESSION as CLASSIC_SESSION
from penstock.coordinators.group.classic.state import ClassicGroupState, ClassicMember
from penstock.coordinators.group.classic.subscription import CONSUMER
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.context import ConsumerCommandContext
from penstock.coordinators.group.consumer.embedded_protocol import (
    read_subscription,
    write_assignment,
)
from penstock.coordinators.group.consumer.partitions import together
from penstock.coordinators.group.consumer.state import ConsumerGroupState, ConsumerMember
from penstock.coordinators.group.records import (
    ConsumerGroupKey,
    ConsumerTopicsKey,
    GroupRecord,
    TargetEpochKey,
)
from penstock.coordinators.group.requests import MemberProtocol

_POLICIES = ("downgrade", "bidirectional")


def remove_members(context: ConsumerCommandContext, members: Iterable[ConsumerMember]) -> None:
    """Remove the members. The others get their partitions with the next heartbeat, or from the
    leader if the group becomes classic."""
    had_consumer_members = has_consumer_members(context.group)
    for member in members:
        context.remove(member.id)
    if had_consumer_members and try_downgrade(context, is_settled=False):
        return
    context.bump_epoch("members left or were removed")


def has_consumer_members(group: ConsumerGroupState) -> bool:
    return any(not member.is_classic for member in group.members.values())


def try_downgrade(context: ConsumerCommandContext, *, is_settled: bool) -> bool:
    """`is_settled`: no partition changed hands, so the classic group need not rebalance."""
    group = context.group
    if not _is_allowed(group, context.config):
        return False
    classic = _to_classic(group)
    assignments = {member.id: _assignment(context, member) for member in group.members.values()}
    record = classic.record(assignments, context.now_ms)
    if not context.fits(record):
        return False
    is_settled &= all(member.is_reconciled(group.epoch) for member in group.members.values())
    for member in classic.members.values():
        context.remove(member.id)
    for key, value in (*tombstones(context.group), record):
        context.write(key, value)
    for member in classic.members.values():
        context.set_timer(CLASSIC_SESSION, member.session_timeout_ms, member.id)
    if not is_settled:
        context.set_timer(DOWNGRADED, 0, "")
    return True


def _is_allowed(group: ConsumerGroupState, config: GroupConfig) -> bool:
    return (
        config.consumer_migration_policy in _POLICIES
        and 0 < len(group.members) <= config.max_size
        and not has_consumer_members(group)
    )


def _to_classic(group: ConsumerGroupState) -> ClassicGroupState:
    classic = ClassicGroupState(group.name, generation=group.epoch, protocol_type=CONSUMER)
    for member in group.members.values():
        subscription = member.subscription
        assert subscription.classic is not None
        classic.add(
            ClassicMember(
                id=member.id,
                instance=subscription.instance,
                client_id=subscription.client_id,
                client_host=subscription.client_host,
                session_timeout_ms=subscription.classic.session_timeout_ms,
                rebalance_timeout_ms=subscription.rebalance_timeout_ms,
                protocols=tuple(
                    MemberProtocol(name, metadata)
                    for name, metadata in subscription.classic.protocols
                ),
            )
        )
    classic.protocol = classic.elect_protocol()
    return classic


def _assignment(context: ConsumerCommandContext, member: ConsumerMember) -> bytes:
    """The partitions that it owns, not its target: it may still consume some that it has to
    revoke."""
    classic = member.subscription.classic
    assert classic is not None
    version = read_subscription(classic.protocols[0][1]).version
    owned = together(member.assigned, member.pending_revocation)
    return write_assignment(owned, version, context.topics)


def tombstones(group: ConsumerGroupState) -> Sequence[GroupRecord]:
    """The tombstones of a group without members; the members' records are gone already."""
    assert not group.members, f"group {group.name} still has {len(group.members)} members"
    return (
        GroupRecord(TargetEpochKey(group.name), None),
        GroupRecord(ConsumerTopicsKey(group.name), None),
        GroupRecord(ConsumerGroupKey(group.name), None),
    )
