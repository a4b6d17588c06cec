"""Static members of the newer protocol: a restart is no departure."""

from tests.unit.coordinators.group.consumer_desk import (
    Consumer,
    ConsumerDesk,
    durable,
    replayed,
    settle,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.model.errors import ErrorCode


def pair(desk: ConsumerDesk) -> tuple[Consumer, Consumer]:
    anna = Consumer(desk, "anna-1", instance="anna")
    bob = Consumer(desk, "bob-1", instance="bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    return anna, bob


def test_a_restart_takes_the_same_work_and_disturbs_nobody() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = pair(desk)
    work, epoch = anna.work, desk.living.epoch
    assert anna.pause().member_epoch == -2
    again = Consumer(desk, "anna-2", instance="anna")
    answer = again.join()
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, epoch)
    assert again.work == work
    assert bob.beat().assignment is None
    assert desk.living.epoch == epoch
    assert set(desk.living.members) == {"anna-2", "bob-1"}
    assert durable(replayed(desk.log)) == durable(desk.groups)


def test_nobody_else_gets_the_work_of_one_that_is_away() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = pair(desk)
    anna.pause()
    settle(bob)
    assert len(bob.work) == 2


def test_one_that_does_not_come_back_within_its_session_is_taken_out() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = pair(desk)
    anna.pause()
    desk.pass_time(desk.config.consumer_session_timeout_ms - 1)
    bob.beat()
    desk.pass_time(1)
    settle(bob)
    assert len(bob.work) == 4


def test_an_instance_that_has_not_left_is_not_replaced() -> None:
    desk = ConsumerDesk(orders=4)
    anna, _ = pair(desk)
    other = Consumer(desk, "anna-2", instance="anna")
    assert other.join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert anna.beat().error is ErrorCode.NONE


def test_the_one_that_was_replaced_is_fenced() -> None:
    desk = ConsumerDesk(orders=4)
    anna, _ = pair(desk)
    anna.pause()
    Consumer(desk, "anna-2", instance="anna").join()
    assert anna.beat().error is ErrorCode.FENCED_INSTANCE_ID
    assert anna.leave().error is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_that_nobody_knows_is_told_so() -> None:
    desk = ConsumerDesk(orders=4)
    pair(desk)
    stranger = Consumer(desk, "carl-1", instance="carl", epoch=2)
    assert stranger.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.pause().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_for_good() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = pair(desk)
    assert anna.leave().member_epoch == -1
    settle(bob)
    assert len(bob.work) == 4
    assert Consumer(desk, "anna-2", instance="anna").join().error is ErrorCode.NONE


def test_one_that_comes_back_to_a_full_group_has_its_place() -> None:
    desk = ConsumerDesk(GroupConfig(consumer_max_size=2), orders=4)
    anna, _ = pair(desk)
    anna.pause()
    assert Consumer(desk, "anna-2", instance="anna").join().error is ErrorCode.NONE


def test_one_that_comes_back_with_other_wishes_gets_them() -> None:
    desk = ConsumerDesk(orders=4, bills=2)
    anna, bob = pair(desk)
    anna.pause()
    again = Consumer(desk, "anna-2", ("bills",), instance="anna")
    again.join()
    settle(again, bob)
    assert again.work == {"bills-0", "bills-1"}
    assert len(bob.work) == 4


def test_one_that_left_while_it_had_to_give_up_some_has_given_them_up() -> None:
    desk = ConsumerDesk(orders=4)
    anna, bob = pair(desk)
    carl = Consumer(desk, "carl")
    carl.join()
    anna.beat()
    anna.pause()
    settle(bob, carl)
    again = Consumer(desk, "anna-2", instance="anna")
    again.join()
    settle(again, bob, carl)
    assert again.work | bob.work | carl.work == {f"orders-{number}" for number in range(4)}
    assert sorted(len(consumer.work) for consumer in (again, bob, carl)) == [1, 1, 2]
    desk.pass_time(desk.config.consumer_session_timeout_ms - 1)
    assert len(desk.living.members) == 3
