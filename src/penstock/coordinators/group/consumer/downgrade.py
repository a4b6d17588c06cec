"""Members go, and with the last one of the newer protocol the group becomes a classic one.

In one batch: the tombstones of the old group and the record of the new, in the generation that its
members know as their epoch.
"""

from collections.abc import Iterable, Sequence

from penstock.coordinators.group.classic.context import SESSION as CLASSIC_SESSION
from penstock.coordinators.group.classic.context import ClassicCommandContext
from penstock.coordinators.group.classic.rebalance import rebalance
from penstock.coordinators.group.classic.state import ClassicGroup, ClassicState, Member
from penstock.coordinators.group.classic.subscription import CONSUMER
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.context import ConsumerCommandContext, fits
from penstock.coordinators.group.consumer.embedded_protocol import (
    read_subscription,
    write_assignment,
)
from penstock.coordinators.group.consumer.partitions import together
from penstock.coordinators.group.consumer.state import ConsumerGroup, ConsumerMember
from penstock.coordinators.group.records import (
    ConsumerGroupKey,
    ConsumerTopicsKey,
    GroupRecord,
    TargetEpochKey,
)
from penstock.coordinators.group.requests import MemberProtocol
from penstock.coordinators.group.result import GroupResult

DOWNGRADED = "consumer-downgraded"  # at once: the members of the new classic group are called
_POLICIES = ("downgrade", "bidirectional")


def expel(turn: ConsumerCommandContext, members: Iterable[ConsumerMember]) -> None:
    """The rest is assigned anew: with the next heartbeat, or by its leader where it is classic."""
    was_mixed = has_modern(turn.group)
    for member in members:
        turn.remove(member.id)
    if was_mixed and try_downgrade(turn, is_settled=False):
        return
    turn.bump_epoch()


def has_modern(group: ConsumerGroup) -> bool:
    return any(not each.is_classic for each in group.members.values())


def try_downgrade(turn: ConsumerCommandContext, *, is_settled: bool) -> bool:
    """`is_settled`: the members need not be called to share out anew."""
    group = turn.group
    if not _may(group, turn.config):
        return False
    heir = _heir(group)
    assignments = {each.id: _assignment(turn, each) for each in group.members.values()}
    record = heir.record(assignments, turn.now_ms)
    if not fits(record, turn.config):
        return False
    is_settled &= all(each.is_reconciled(group.epoch) for each in group.members.values())
    for member in heir.members.values():
        turn.remove(member.id)
    for each in (*tombstones(turn.group), record):
        turn.write(*each)
    for member in heir.members.values():
        turn.set_timer(CLASSIC_SESSION, member.session_timeout_ms, member.id)
    if not is_settled:
        turn.set_timer(DOWNGRADED, 0, "")
    return True


def _may(group: ConsumerGroup, config: GroupConfig) -> bool:
    return (
        config.consumer_migration_policy in _POLICIES
        and 0 < len(group.members) <= config.max_size
        and not has_modern(group)
    )


def _heir(group: ConsumerGroup) -> ClassicGroup:
    heir = ClassicGroup(group.name, generation=group.epoch, protocol_type=CONSUMER)
    for member in group.members.values():
        subscription = member.subscription
        assert subscription.classic is not None
        heir.add(
            Member(
                id=member.id,
                instance=subscription.instance,
                client_id=subscription.client_id,
                client_host=subscription.client_host,
                session_timeout_ms=subscription.classic.session_timeout_ms,
                rebalance_timeout_ms=subscription.rebalance_timeout_ms,
                protocols=tuple(MemberProtocol(*each) for each in subscription.classic.protocols),
            )
        )
    heir.protocol = heir.elect_protocol()
    return heir


def _assignment(turn: ConsumerCommandContext, member: ConsumerMember) -> bytes:
    """What it has, not what it shall have: it may still work on what it was to give up."""
    classic = member.subscription.classic
    assert classic is not None
    version = read_subscription(classic.protocols[0][1]).version
    held = together(member.assigned, member.pending_revocation)
    return write_assignment(held, version, turn.topics)


def call_members(group: ClassicGroup, now_ms: int, config: GroupConfig) -> GroupResult[None]:
    """What the one that left had belongs to nobody until they have shared out anew."""
    turn = ClassicCommandContext(group, now_ms, config)
    if group.state is ClassicState.STABLE:
        rebalance(turn)
    return turn.outcome(None)


def tombstones(group: ConsumerGroup) -> Sequence[GroupRecord]:
    """Of a group without members, whose own have gone with them."""
    assert not group.members, f"group {group.name} still has {len(group.members)} members"
    return (
        GroupRecord(TargetEpochKey(group.name), None),
        GroupRecord(ConsumerTopicsKey(group.name), None),
        GroupRecord(ConsumerGroupKey(group.name), None),
    )
