"""Groups change from the classic protocol to the newer one and back while they work."""

import pytest
from tests.unit.coordinators.group.consumer_desk import (
    GROUP,
    Consumer,
    ConsumerDesk,
    compacted,
    durable,
    replayed,
)
from tests.unit.coordinators.group.mixed_desk import (
    COOPERATIVE,
    EAGER,
    REBALANCE_MS,
    SESSION_MS,
    ClassicConsumer,
)

from penstock.coordinators.group.classic.protocol import ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer import protocol as consumer
from penstock.coordinators.group.consumer.embedded_protocol import read_assignment
from penstock.coordinators.group.consumer.partitions import overlap
from penstock.coordinators.group.consumer.requests import JOIN_EPOCH
from penstock.coordinators.group.consumer.state import ConsumerState
from penstock.coordinators.group.requests import JoinGroup, JoinGroupReply, MemberProtocol
from penstock.coordinators.group.result import TimerKey
from penstock.model.errors import ErrorCode

BOTH = pytest.mark.parametrize("assignor", [COOPERATIVE, EAGER])


def classic_group(
    desk: ConsumerDesk, *names: str, assignor: str = COOPERATIVE
) -> list[ClassicConsumer]:
    members = [ClassicConsumer(desk, name, assignor=assignor) for name in names]
    settle(*members)
    assert desk.classic.state is ClassicState.STABLE
    return members


def settle(*consumers: Consumer | ClassicConsumer) -> None:
    for _ in range(10):
        for each in consumers:
            if isinstance(each, ClassicConsumer):
                each.go_on()
            elif each.epoch == JOIN_EPOCH:
                each.join()
            else:
                each.beat()
        consumers[0].desk.pass_time(0)


def check_shared(desk: ConsumerDesk, *consumers: Consumer | ClassicConsumer) -> None:
    """All of `orders`, each partition once, and nobody has two more than another."""
    view = desk.topics.find("orders")
    assert view is not None
    work = [each.work for each in consumers]
    assert sorted(one for each in work for one in each) == sorted(
        f"orders-{number}" for number in range(view.partitions)
    )
    assert max(map(len, work)) - min(map(len, work)) <= 1
    assert durable(replayed(desk.log)) == durable(desk.groups)
    assert durable(replayed(compacted(desk.log))) == durable(desk.groups)


def test_an_empty_classic_group_gives_way() -> None:
    desk = ConsumerDesk(orders=2)
    (anna,) = classic_group(desk, "anna")
    anna.leave()
    assert desk.classic.state is ClassicState.EMPTY
    bob = Consumer(desk, "bob")
    assert bob.join().error is ErrorCode.NONE
    assert bob.work == {"orders-0", "orders-1"}
    assert durable(replayed(compacted(desk.log))) == durable(desk.groups)


def test_an_empty_group_of_the_newer_protocol_gives_way() -> None:
    desk = ConsumerDesk(orders=2)
    bob = Consumer(desk, "bob")
    bob.join()
    bob.leave()
    anna = ClassicConsumer(desk, "anna")
    settle(anna)
    assert anna.work == {"orders-0", "orders-1"}
    assert desk.classic.state is ClassicState.STABLE
    assert durable(replayed(compacted(desk.log))) == durable(desk.groups)


def test_a_classic_join_that_is_refused_does_not_end_an_empty_group() -> None:
    desk = ConsumerDesk(orders=2)
    bob = Consumer(desk, "bob")
    bob.join()
    bob.leave()
    anna = ClassicConsumer(desk, "anna", protocol_type="")
    anna.join()
    assert anna.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.living.state is ConsumerState.EMPTY


@BOTH
def test_members_of_both_protocols_share_the_work(assignor: str) -> None:
    desk = ConsumerDesk(orders=6)
    anna, bob = classic_group(desk, "anna", "bob", assignor=assignor)
    carl = Consumer(desk, "carl")
    carl.join()
    assert carl.work == set()  # the others have all
    settle(anna, bob, carl)
    assert desk.living.state is ConsumerState.STABLE
    check_shared(desk, anna, bob, carl)


@BOTH
def test_all_members_may_move_one_by_one(assignor: str) -> None:
    desk = ConsumerDesk(orders=6)
    old = classic_group(desk, "anna", "bob", "carl", assignor=assignor)
    new: list[Consumer] = []
    for member in list(old):
        member.leave()
        old.remove(member)
        new.append(Consumer(desk, f"new-{member.name}"))
        settle(*old, *new)
        check_shared(desk, *old, *new)
    assert not any(member.is_classic for member in desk.living.members.values())


@BOTH
def test_the_last_of_the_newer_protocol_leaves_a_classic_group_behind(assignor: str) -> None:
    desk = ConsumerDesk(orders=6)
    members = classic_group(desk, "anna", "bob", assignor=assignor)
    carl = Consumer(desk, "carl")
    settle(*members, carl)
    carl.leave()
    desk.pass_time(0)
    assert members[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS  # his share is nobody's
    settle(*members)
    assert desk.classic.state is ClassicState.STABLE
    check_shared(desk, *members)


def test_the_last_of_the_newer_protocol_falls_silent() -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, consumer_session_timeout_ms=5000)
    desk = ConsumerDesk(config, orders=4)
    members = classic_group(desk, "anna", "bob")
    carl = Consumer(desk, "carl")
    settle(*members, carl)
    desk.pass_time(5000)
    settle(*members)
    check_shared(desk, *members)
    assert desk.classic.state is ClassicState.STABLE


def test_a_classic_member_comes_to_a_group_of_the_newer_protocol() -> None:
    desk = ConsumerDesk(orders=4)
    anna = Consumer(desk, "anna")
    anna.join()
    bob = ClassicConsumer(desk, "bob")
    settle(anna, bob)
    check_shared(desk, anna, bob)
    assert bob.leave() is ErrorCode.NONE
    settle(anna)
    check_shared(desk, anna)


def test_a_restart_of_the_broker_disturbs_nobody_in_a_mixed_group() -> None:
    desk = ConsumerDesk(orders=4)
    (anna,) = classic_group(desk, "anna")
    bob = Consumer(desk, "bob")
    settle(anna, bob)
    work = anna.work, bob.work
    desk.restart()
    settle(anna, bob)
    assert (anna.work, bob.work) == work


def test_members_in_the_middle_of_a_classic_rebalance_are_called_again() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = classic_group(desk, "anna", "bob")
    anna.join()
    assert anna.waits
    carl = Consumer(desk, "carl")
    carl.join()
    assert anna.error is ErrorCode.REBALANCE_IN_PROGRESS
    settle(anna, bob, carl)
    check_shared(desk, anna, bob, carl)


def test_one_that_never_was_in_a_generation_comes_as_if_for_the_first_time() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = classic_group(desk, "anna", "bob")
    dora = ClassicConsumer(desk, "dora")
    dora.join()
    assert dora.waits
    carl = Consumer(desk, "carl")
    carl.join()
    assert dora.id not in desk.living.members
    settle(anna, bob, carl, dora)
    check_shared(desk, anna, bob, carl, dora)


def test_what_a_member_was_to_give_up_is_still_its_own_when_the_group_goes_back() -> None:
    desk = ConsumerDesk(orders=4)
    members = classic_group(desk, "anna", "bob")
    carl = Consumer(desk, "carl")
    carl.join()
    carl.leave()
    again = Consumer(desk, "carl-2")
    again.join()
    assert again.work == set()
    settle(*members, again)
    check_shared(desk, *members, again)


def test_what_a_classic_assignment_took_is_still_a_members_until_it_has_joined_again() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = classic_group(desk, "anna", "bob")
    held = bob.owned
    dora = ClassicConsumer(desk, "dora")
    dora.join()
    bob.forgets_to_sync = True  # so he does not hear what was taken from him
    anna.go_on()
    bob.go_on()
    assert desk.classic.state is ClassicState.STABLE
    assert read_assignment(desk.classic.members[bob.id].assignment, desk.topics) != held
    eva = Consumer(desk, "eva")
    eva.join()
    target = desk.living.target("eva")
    assert overlap(target, held)
    assert not overlap(eva.owned, held)
    bob.forgets_to_sync = False
    settle(anna, bob, dora, eva)
    check_shared(desk, anna, bob, dora, eva)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_may_keep_a_group_classic(policy: str) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    desk = ConsumerDesk(config, orders=2)
    (anna,) = classic_group(desk, "anna")
    answer = Consumer(desk, "bob").join()
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.message is not None
    assert "group.consumer.migration.policy" in answer.message
    assert anna.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_policy_may_keep_a_group_from_going_back(policy: str) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    desk = ConsumerDesk(config, orders=4)
    anna, bob = Consumer(desk, "anna"), ClassicConsumer(desk, "bob")
    settle(anna, bob)
    anna.leave()
    settle(bob)
    assert list(desk.living.members) == [bob.id]
    assert len(bob.work) == 4


def test_other_groups_than_consumers_stay_classic() -> None:
    desk = ConsumerDesk(orders=2)
    worker = ClassicConsumer(desk, "worker", protocol_type="connect")
    worker.join()
    assert Consumer(desk, "bob").join().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.classic.protocol_type == "connect"


def test_other_groups_members_may_not_come_to_consumers() -> None:
    desk = ConsumerDesk(orders=2)
    Consumer(desk, "bob").join()
    worker = ClassicConsumer(desk, "worker", protocol_type="connect")
    worker.join()
    assert worker.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_session_must_be_as_long_as_the_broker_allows() -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, max_session_timeout_ms=SESSION_MS - 1)
    desk = ConsumerDesk(config, orders=2)
    Consumer(desk, "bob").join()
    anna = ClassicConsumer(desk, "anna")
    anna.join()
    assert anna.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_what_is_no_subscription_is_refused() -> None:
    desk = ConsumerDesk(orders=2)
    Consumer(desk, "bob").join()
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
    outcome = consumer.join(desk.living, request, desk.now_ms, desk.config, desk.topics)
    assert isinstance(outcome.answer, JoinGroupReply)
    assert outcome.answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not outcome.records


def test_classic_members_of_a_mixed_group_must_have_an_assignor_in_common() -> None:
    desk = ConsumerDesk(orders=2)
    Consumer(desk, "anna").join()
    settle(ClassicConsumer(desk, "bob", assignor=COOPERATIVE))
    carl = ClassicConsumer(desk, "carl", assignor=EAGER)
    carl.join()
    assert carl.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_of_the_newer_protocol_that_a_classic_group_does_not_know_may_join() -> None:
    desk = ConsumerDesk(orders=2)
    (anna,) = classic_group(desk, "anna")
    bob = Consumer(desk, "bob", epoch=7)
    assert bob.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    settle(anna, bob)
    check_shared(desk, anna, bob)


# Classic members in a group of the newer protocol, one rule at a time.


def mixed(desk: ConsumerDesk) -> tuple[Consumer, ClassicConsumer]:
    anna, bob = Consumer(desk, "anna"), ClassicConsumer(desk, "bob")
    settle(anna, bob)
    return anna, bob


def test_a_classic_member_is_called_when_the_group_changes() -> None:
    desk = ConsumerDesk(orders=4)
    _, bob = mixed(desk)
    assert bob.heartbeat() is ErrorCode.NONE
    Consumer(desk, "carl").join()
    assert bob.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_that_does_not_join_again_in_time_is_taken_out() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = mixed(desk)
    anna.beat(topics=("orders", "bills"))
    for _ in range(REBALANCE_MS // 5000):
        assert bob.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        anna.beat()
        desk.pass_time(5000)
    assert list(desk.living.members) == ["anna"]


def test_a_classic_member_that_does_not_sync_in_time_is_taken_out() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = mixed(desk)
    bob.forgets_to_sync = True
    bob.join()
    for _ in range(REBALANCE_MS // 5000):
        bob.heartbeat()
        anna.beat()
        desk.pass_time(5000)
    assert list(desk.living.members) == ["anna"]


def test_a_classic_member_that_falls_silent_is_taken_out() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = mixed(desk)
    desk.pass_time(SESSION_MS - 1)
    assert bob.id in desk.living.members
    desk.pass_time(1)
    assert list(desk.living.members) == ["anna"]
    settle(anna)
    assert len(anna.work) == 4


def test_a_classic_member_of_another_generation_is_told_so() -> None:
    desk = ConsumerDesk(orders=4)
    _, bob = mixed(desk)
    bob.generation += 1
    assert bob.heartbeat() is ErrorCode.ILLEGAL_GENERATION


def test_the_newer_protocols_members_cannot_be_spoken_for_by_classic_requests() -> None:
    desk = ConsumerDesk(orders=4)
    anna, _ = mixed(desk)
    impostor = ClassicConsumer(desk, "anna", id="anna", generation=anna.epoch)
    assert impostor.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    impostor = ClassicConsumer(desk, "anna", id="anna", generation=anna.epoch)
    assert impostor.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert "anna" in desk.living.members


def test_a_static_member_may_change_its_protocol_and_keeps_its_work() -> None:
    desk = ConsumerDesk(orders=4)
    old = ClassicConsumer(desk, "anna", instance="anna")
    bob = Consumer(desk, "bob")
    settle(old, bob)
    work = old.work
    new = Consumer(desk, "anna-2", instance="anna")
    new.join()
    assert new.work == work
    assert not any(member.is_classic for member in desk.living.members.values())
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_the_last_of_the_newer_protocol_becomes_classic_and_so_does_the_group() -> None:
    desk = ConsumerDesk(orders=4)
    anna = Consumer(desk, "anna-1", instance="anna")
    bob = ClassicConsumer(desk, "bob")
    settle(anna, bob)
    work = anna.work, bob.work
    anna.pause()
    new = ClassicConsumer(desk, "anna", instance="anna")
    new.join()
    assert desk.classic.state is ClassicState.STABLE
    settle(new, bob)
    assert (new.work, bob.work) == work
    sessions = [key for key in desk.timers if key == TimerKey("billing", "session", key.member)]
    assert {key.member for key in sessions} == {new.id, bob.id}
