"""Groups are upgraded to the consumer protocol and downgraded while they run."""

import pytest
from tests.unit.coordinators.group.consumer_harness import (
    GROUP,
    Consumer,
    ConsumerGroupHarness,
    compacted,
    durable,
    replay_log,
)
from tests.unit.coordinators.group.mixed_members import (
    COOPERATIVE,
    EAGER,
    REBALANCE_MS,
    SESSION_MS,
    ClassicConsumer,
)

from penstock.coordinators.group.classic.state import ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.embedded_protocol import read_assignment
from penstock.coordinators.group.consumer.partitions import overlap
from penstock.coordinators.group.consumer.requests import JOIN_EPOCH
from penstock.coordinators.group.consumer.state import ConsumerState
from penstock.coordinators.group.requests import JoinGroup, JoinGroupReply, MemberProtocol
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import Waiter
from penstock.model.errors import ErrorCode

BOTH = pytest.mark.parametrize("assignor", [COOPERATIVE, EAGER])


def classic_group(
    harness: ConsumerGroupHarness, *names: str, assignor: str = COOPERATIVE
) -> list[ClassicConsumer]:
    members = [ClassicConsumer(harness, name, assignor=assignor) for name in names]
    settle(*members)
    assert harness.classic.state is ClassicState.STABLE
    return members


def settle(*consumers: Consumer | ClassicConsumer) -> None:
    for _ in range(10):
        for consumer in consumers:
            if isinstance(consumer, ClassicConsumer):
                consumer.go_on()
            elif consumer.epoch == JOIN_EPOCH:
                consumer.join()
            else:
                consumer.beat()
        consumers[0].harness.pass_time(0)


def check_shared(harness: ConsumerGroupHarness, *consumers: Consumer | ClassicConsumer) -> None:
    """Each partition of `orders` has one owner, and loads differ by one at most."""
    view = harness.topics.find("orders")
    assert view is not None
    work = [consumer.work for consumer in consumers]
    assert sorted(one for own in work for one in own) == sorted(
        f"orders-{number}" for number in range(view.partitions)
    )
    assert max(map(len, work)) - min(map(len, work)) <= 1
    assert durable(replay_log(harness.log)) == durable(harness.groups)
    assert durable(replay_log(compacted(harness.log))) == durable(harness.groups)


def test_an_empty_classic_group_is_replaced() -> None:
    harness = ConsumerGroupHarness(orders=2)
    (anna,) = classic_group(harness, "anna")
    anna.leave()
    assert harness.classic.state is ClassicState.EMPTY
    bob = Consumer(harness, "bob")
    assert bob.join().error is ErrorCode.NONE
    assert bob.work == {"orders-0", "orders-1"}
    assert durable(replay_log(compacted(harness.log))) == durable(harness.groups)


def test_an_empty_consumer_group_is_replaced() -> None:
    harness = ConsumerGroupHarness(orders=2)
    bob = Consumer(harness, "bob")
    bob.join()
    bob.leave()
    anna = ClassicConsumer(harness, "anna")
    settle(anna)
    assert anna.work == {"orders-0", "orders-1"}
    assert harness.classic.state is ClassicState.STABLE
    assert durable(replay_log(compacted(harness.log))) == durable(harness.groups)


def test_a_rejected_classic_join_does_not_replace_an_empty_consumer_group() -> None:
    harness = ConsumerGroupHarness(orders=2)
    bob = Consumer(harness, "bob")
    bob.join()
    bob.leave()
    anna = ClassicConsumer(harness, "anna", protocol_type="")
    anna.join()
    assert anna.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.consumer.state is ConsumerState.EMPTY


@BOTH
def test_members_of_both_protocols_share_the_partitions(assignor: str) -> None:
    harness = ConsumerGroupHarness(orders=6)
    anna, bob = classic_group(harness, "anna", "bob", assignor=assignor)
    carl = Consumer(harness, "carl")
    carl.join()
    assert carl.work == set()  # the others own all partitions
    settle(anna, bob, carl)
    assert harness.consumer.state is ConsumerState.STABLE
    check_shared(harness, anna, bob, carl)


@BOTH
def test_members_migrate_one_by_one(assignor: str) -> None:
    harness = ConsumerGroupHarness(orders=6)
    old = classic_group(harness, "anna", "bob", "carl", assignor=assignor)
    new: list[Consumer] = []
    for member in list(old):
        member.leave()
        old.remove(member)
        new.append(Consumer(harness, f"new-{member.name}"))
        settle(*old, *new)
        check_shared(harness, *old, *new)
    assert not any(member.is_classic for member in harness.consumer.members.values())


@BOTH
def test_the_group_is_downgraded_when_its_last_consumer_member_leaves(assignor: str) -> None:
    harness = ConsumerGroupHarness(orders=6)
    members = classic_group(harness, "anna", "bob", assignor=assignor)
    carl = Consumer(harness, "carl")
    settle(*members, carl)
    carl.leave()
    harness.pass_time(0)
    assert members[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS  # his partitions have no owner
    settle(*members)
    assert harness.classic.state is ClassicState.STABLE
    check_shared(harness, *members)


def test_the_group_is_downgraded_when_its_last_consumer_member_expires() -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, consumer_session_timeout_ms=5000)
    harness = ConsumerGroupHarness(config, orders=4)
    members = classic_group(harness, "anna", "bob")
    carl = Consumer(harness, "carl")
    settle(*members, carl)
    harness.pass_time(5000)
    settle(*members)
    check_shared(harness, *members)
    assert harness.classic.state is ClassicState.STABLE


def test_a_classic_member_joins_a_consumer_group() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna = Consumer(harness, "anna")
    anna.join()
    bob = ClassicConsumer(harness, "bob")
    settle(anna, bob)
    check_shared(harness, anna, bob)
    assert bob.leave() is ErrorCode.NONE
    settle(anna)
    check_shared(harness, anna)


def test_a_coordinator_restart_does_not_affect_a_mixed_group() -> None:
    harness = ConsumerGroupHarness(orders=4)
    (anna,) = classic_group(harness, "anna")
    bob = Consumer(harness, "bob")
    settle(anna, bob)
    work = anna.work, bob.work
    harness.restart()
    settle(anna, bob)
    assert (anna.work, bob.work) == work


def test_members_of_a_classic_rebalance_rejoin_after_the_upgrade() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = classic_group(harness, "anna", "bob")
    anna.join()
    assert anna.waits
    carl = Consumer(harness, "carl")
    carl.join()
    assert anna.error is ErrorCode.REBALANCE_IN_PROGRESS
    settle(anna, bob, carl)
    check_shared(harness, anna, bob, carl)


def test_a_member_without_a_generation_joins_as_a_new_one_after_the_upgrade() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = classic_group(harness, "anna", "bob")
    dora = ClassicConsumer(harness, "dora")
    dora.join()
    assert dora.waits
    carl = Consumer(harness, "carl")
    carl.join()
    assert dora.id not in harness.consumer.members
    settle(anna, bob, carl, dora)
    check_shared(harness, anna, bob, carl, dora)


def test_unrevoked_partitions_stay_with_their_member_on_a_downgrade() -> None:
    harness = ConsumerGroupHarness(orders=4)
    members = classic_group(harness, "anna", "bob")
    carl = Consumer(harness, "carl")
    carl.join()
    carl.leave()
    again = Consumer(harness, "carl-2")
    again.join()
    assert again.work == set()
    settle(*members, again)
    check_shared(harness, *members, again)


def test_partitions_lost_in_a_classic_assignment_are_revoked_after_the_upgrade() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = classic_group(harness, "anna", "bob")
    held = bob.owned
    dora = ClassicConsumer(harness, "dora")
    dora.join()
    bob.forgets_to_sync = True  # so he does not learn which partitions to revoke
    anna.go_on()
    bob.go_on()
    assert harness.classic.state is ClassicState.STABLE
    assert read_assignment(harness.classic.members[bob.id].assignment, harness.topics) != held
    eva = Consumer(harness, "eva")
    eva.join()
    target = harness.consumer.target("eva")
    assert overlap(target, held)
    assert not overlap(eva.owned, held)
    bob.forgets_to_sync = False
    settle(anna, bob, dora, eva)
    check_shared(harness, anna, bob, dora, eva)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_can_forbid_an_upgrade(policy: str) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    harness = ConsumerGroupHarness(config, orders=2)
    (anna,) = classic_group(harness, "anna")
    reply = Consumer(harness, "bob").join()
    assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert reply.message is not None
    assert "group.consumer.migration.policy" in reply.message
    assert anna.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_can_forbid_a_downgrade(policy: str) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    harness = ConsumerGroupHarness(config, orders=4)
    anna, bob = Consumer(harness, "anna"), ClassicConsumer(harness, "bob")
    settle(anna, bob)
    anna.leave()
    settle(bob)
    assert list(harness.consumer.members) == [bob.id]
    assert len(bob.work) == 4


def test_groups_of_another_protocol_type_are_not_upgraded() -> None:
    harness = ConsumerGroupHarness(orders=2)
    worker = ClassicConsumer(harness, "worker", protocol_type="connect")
    worker.join()
    assert Consumer(harness, "bob").join().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.classic.protocol_type == "connect"


def test_members_of_another_protocol_type_cannot_join_a_consumer_group() -> None:
    harness = ConsumerGroupHarness(orders=2)
    Consumer(harness, "bob").join()
    worker = ClassicConsumer(harness, "worker", protocol_type="connect")
    worker.join()
    assert worker.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_session_timeout_of_a_classic_member_is_checked() -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, max_session_timeout_ms=SESSION_MS - 1)
    harness = ConsumerGroupHarness(config, orders=2)
    Consumer(harness, "bob").join()
    anna = ClassicConsumer(harness, "anna")
    anna.join()
    assert anna.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_invalid_subscription_metadata_is_rejected() -> None:
    harness = ConsumerGroupHarness(orders=2)
    Consumer(harness, "bob").join()
    request = JoinGroup(
        group=GROUP,
        member="anna",
        instance=None,
        client_id="anna",
        client_host="/10.0.0.2",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=(MemberProtocol("range", b"\x00\x01\x7f"),),
        requires_known_member=True,
    )
    result = harness.consumer.join(request, Waiter(1), harness.environment)
    assert isinstance(result.reply, JoinGroupReply)
    assert result.reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not result.records


def test_classic_members_of_a_mixed_group_need_a_common_protocol() -> None:
    harness = ConsumerGroupHarness(orders=2)
    Consumer(harness, "anna").join()
    settle(ClassicConsumer(harness, "bob", assignor=COOPERATIVE))
    carl = ClassicConsumer(harness, "carl", assignor=EAGER)
    carl.join()
    assert carl.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_only_a_join_upgrades_a_classic_group() -> None:
    harness = ConsumerGroupHarness(orders=2)
    (anna,) = classic_group(harness, "anna")
    bob = Consumer(harness, "bob", epoch=7)
    assert bob.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    settle(anna, bob)
    check_shared(harness, anna, bob)


# Classic members of a consumer group, one rule at a time.


def mixed(harness: ConsumerGroupHarness) -> tuple[Consumer, ClassicConsumer]:
    anna, bob = Consumer(harness, "anna"), ClassicConsumer(harness, "bob")
    settle(anna, bob)
    return anna, bob


def test_a_classic_member_has_to_rejoin_when_the_group_changes() -> None:
    harness = ConsumerGroupHarness(orders=4)
    _, bob = mixed(harness)
    assert bob.heartbeat() is ErrorCode.NONE
    Consumer(harness, "carl").join()
    assert bob.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_that_does_not_rejoin_in_time_is_removed() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = mixed(harness)
    anna.beat(topics=("orders", "bills"))
    for _ in range(REBALANCE_MS // 5000):
        assert bob.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        anna.beat()
        harness.pass_time(5000)
    assert list(harness.consumer.members) == ["anna"]


def test_a_classic_member_that_does_not_sync_in_time_is_removed() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = mixed(harness)
    bob.forgets_to_sync = True
    bob.join()
    for _ in range(REBALANCE_MS // 5000):
        bob.heartbeat()
        anna.beat()
        harness.pass_time(5000)
    assert list(harness.consumer.members) == ["anna"]


def test_a_classic_member_without_heartbeats_is_removed() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = mixed(harness)
    harness.pass_time(SESSION_MS - 1)
    assert bob.id in harness.consumer.members
    harness.pass_time(1)
    assert list(harness.consumer.members) == ["anna"]
    settle(anna)
    assert len(anna.work) == 4


def test_a_classic_member_of_another_generation_gets_illegal_generation() -> None:
    harness = ConsumerGroupHarness(orders=4)
    _, bob = mixed(harness)
    bob.generation += 1
    assert bob.heartbeat() is ErrorCode.ILLEGAL_GENERATION


def test_classic_requests_for_a_consumer_member_get_unknown_member_id() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, _ = mixed(harness)
    impostor = ClassicConsumer(harness, "anna", id="anna", generation=anna.epoch)
    assert impostor.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    impostor = ClassicConsumer(harness, "anna", id="anna", generation=anna.epoch)
    assert impostor.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert "anna" in harness.consumer.members


def test_a_static_member_keeps_its_partitions_when_it_changes_its_protocol() -> None:
    harness = ConsumerGroupHarness(orders=4)
    old = ClassicConsumer(harness, "anna", instance="anna")
    bob = Consumer(harness, "bob")
    settle(old, bob)
    work = old.work
    new = Consumer(harness, "anna-2", instance="anna")
    new.join()
    assert new.work == work
    assert not any(member.is_classic for member in harness.consumer.members.values())
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_the_group_is_downgraded_when_its_last_consumer_member_becomes_classic() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna = Consumer(harness, "anna-1", instance="anna")
    bob = ClassicConsumer(harness, "bob")
    settle(anna, bob)
    work = anna.work, bob.work
    anna.pause()
    new = ClassicConsumer(harness, "anna", instance="anna")
    new.join()
    assert harness.classic.state is ClassicState.STABLE
    settle(new, bob)
    assert (new.work, bob.work) == work
    sessions = [key for key in harness.timers if key == TimerKey("billing", "session", key.member)]
    assert {key.member for key in sessions} == {new.id, bob.id}
