"""Static members of consumer groups: a restart is no leave."""

from tests.unit.coordinators.group.consumer_harness import (
    Consumer,
    ConsumerGroupHarness,
    durable,
    replay_log,
    settle,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.model.errors import ErrorCode


def pair(harness: ConsumerGroupHarness) -> tuple[Consumer, Consumer]:
    anna = Consumer(harness, "anna-1", instance="anna")
    bob = Consumer(harness, "bob-1", instance="bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    return anna, bob


def test_a_restarted_static_member_keeps_its_partitions_without_a_rebalance() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = pair(harness)
    work, epoch = anna.work, harness.consumer.epoch
    assert anna.pause().member_epoch == -2
    again = Consumer(harness, "anna-2", instance="anna")
    reply = again.join()
    assert (reply.error, reply.member_epoch) == (ErrorCode.NONE, epoch)
    assert again.work == work
    assert bob.beat().assignment is None
    assert harness.consumer.epoch == epoch
    assert set(harness.consumer.members) == {"anna-2", "bob-1"}
    assert durable(replay_log(harness.log)) == durable(harness.groups)


def test_partitions_of_an_absent_static_member_are_not_reassigned() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = pair(harness)
    anna.pause()
    settle(bob)
    assert len(bob.work) == 2


def test_a_static_member_that_does_not_return_within_its_session_is_removed() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = pair(harness)
    anna.pause()
    harness.pass_time(harness.config.consumer_session_timeout_ms - 1)
    bob.beat()
    harness.pass_time(1)
    settle(bob)
    assert len(bob.work) == 4


def test_an_instance_that_has_not_left_is_unreleased() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, _ = pair(harness)
    other = Consumer(harness, "anna-2", instance="anna")
    assert other.join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert anna.beat().error is ErrorCode.NONE


def test_a_replaced_static_member_is_fenced() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, _ = pair(harness)
    anna.pause()
    Consumer(harness, "anna-2", instance="anna").join()
    assert anna.beat().error is ErrorCode.FENCED_INSTANCE_ID
    assert anna.leave().error is ErrorCode.FENCED_INSTANCE_ID


def test_an_unknown_instance_gets_unknown_member_id() -> None:
    harness = ConsumerGroupHarness(orders=4)
    pair(harness)
    stranger = Consumer(harness, "carl-1", instance="carl", epoch=2)
    assert stranger.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.pause().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_can_leave_permanently() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = pair(harness)
    assert anna.leave().member_epoch == -1
    settle(bob)
    assert len(bob.work) == 4
    assert Consumer(harness, "anna-2", instance="anna").join().error is ErrorCode.NONE


def test_a_static_member_returns_to_a_full_group() -> None:
    harness = ConsumerGroupHarness(GroupConfig(consumer_max_size=2), orders=4)
    anna, _ = pair(harness)
    anna.pause()
    assert Consumer(harness, "anna-2", instance="anna").join().error is ErrorCode.NONE


def test_a_static_member_that_returns_with_another_subscription_gets_it() -> None:
    harness = ConsumerGroupHarness(orders=4, bills=2)
    anna, bob = pair(harness)
    anna.pause()
    again = Consumer(harness, "anna-2", ("bills",), instance="anna")
    again.join()
    settle(again, bob)
    assert again.work == {"bills-0", "bills-1"}
    assert len(bob.work) == 4


def test_a_static_member_that_leaves_releases_its_pending_revocations() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = pair(harness)
    carl = Consumer(harness, "carl")
    carl.join()
    anna.beat()
    anna.pause()
    settle(bob, carl)
    again = Consumer(harness, "anna-2", instance="anna")
    again.join()
    settle(again, bob, carl)
    assert again.work | bob.work | carl.work == {f"orders-{number}" for number in range(4)}
    assert sorted(len(member.work) for member in (again, bob, carl)) == [1, 1, 2]
    harness.pass_time(harness.config.consumer_session_timeout_ms - 1)
    assert len(harness.consumer.members) == 3
