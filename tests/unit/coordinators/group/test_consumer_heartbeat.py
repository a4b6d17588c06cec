"""Joining, leaving and sharing work under the newer protocol (KIP-848)."""

import pytest
from tests.unit.coordinators.group.consumer_harness import (
    Consumer,
    ConsumerGroupHarness,
    compacted,
    durable,
    replay_log,
    settle,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.partitions import to_topics
from penstock.coordinators.group.consumer.state import ConsumerState, MemberState
from penstock.coordinators.group.records import TopicPartitions
from penstock.model.errors import ErrorCode


def test_the_first_member_has_everything_with_its_first_answer() -> None:
    harness = ConsumerGroupHarness(orders=3)
    anna = Consumer(harness, "anna")
    reply = anna.join()
    assert (reply.error, reply.member, reply.member_epoch) == (ErrorCode.NONE, "anna", 1)
    assert reply.heartbeat_interval_ms == harness.config.consumer_heartbeat_interval_ms
    assert anna.work == {"orders-0", "orders-1", "orders-2"}
    assert harness.consumer.state is ConsumerState.STABLE


def test_a_member_without_an_id_is_given_one_where_the_version_allows() -> None:
    harness = ConsumerGroupHarness(orders=1)
    reply = Consumer(harness, "").join(requires_member=False)
    assert reply.error is ErrorCode.NONE
    assert reply.member
    assert list(harness.consumer.members) == [reply.member]


def test_a_partition_changes_hands_only_after_its_owner_gave_it_up() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    assert bob.work == set()
    assert harness.consumer.members["bob"].state is MemberState.UNRELEASED_PARTITIONS
    told = anna.beat()
    assert told.member_epoch == 1  # she stays where she was until she has given it up
    assert harness.consumer.members["anna"].state is MemberState.UNREVOKED_PARTITIONS
    assert bob.beat().assignment is None
    assert anna.beat().member_epoch == 2
    bob.beat()
    assert anna.work | bob.work == {"orders-0", "orders-1"}
    assert len(anna.work) == len(bob.work) == 1
    assert harness.consumer.state is ConsumerState.STABLE


def test_a_member_that_does_not_say_what_it_owns_has_not_given_anything_up() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    anna.send()
    anna.send()
    assert harness.consumer.members["anna"].state is MemberState.UNREVOKED_PARTITIONS
    assert bob.beat().assignment is None


def test_one_that_waits_for_others_is_asked_back_soon() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    usual_ms = anna.join().heartbeat_interval_ms
    assert bob.join().heartbeat_interval_ms < usual_ms
    anna.beat()
    anna.beat()
    reply = bob.beat()
    assert reply.assignment
    assert reply.heartbeat_interval_ms == usual_ms


def test_the_work_of_one_that_leaves_goes_to_the_rest() -> None:
    harness = ConsumerGroupHarness(orders=4)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    reply = anna.leave()
    assert (reply.error, reply.member_epoch) == (ErrorCode.NONE, -1)
    assert not [key for key in harness.timers if key.member == "anna"]
    settle(bob)
    assert bob.work == {"orders-0", "orders-1", "orders-2", "orders-3"}


def test_the_last_one_leaves_an_empty_group_behind() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    anna.leave()
    assert harness.consumer.state is ConsumerState.EMPTY
    assert not harness.timers
    assert Consumer(harness, "bob").join().member_epoch == 3


def test_a_heartbeat_without_news_writes_nothing_and_is_told_nothing() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    anna.beat()
    written = len(harness.log)
    reply = anna.beat()
    assert reply.assignment is None
    assert len(harness.log) == written


def test_a_member_that_says_everything_is_told_everything() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    reply = anna.beat(rebalance_timeout_ms=60_000, topics=("orders",))
    assert reply.assignment == (TopicPartitions(harness.topics.all()["orders"].topic_id, (0,)),)


def test_a_new_subscription_is_a_new_assignment() -> None:
    harness = ConsumerGroupHarness(orders=1, bills=1)
    anna = Consumer(harness, "anna")
    anna.join()
    anna.beat(topics=("orders", "bills"))
    assert anna.work == {"orders-0", "bills-0"}
    anna.beat(topics=("bills",))
    settle(anna)
    assert anna.work == {"bills-0"}


def test_a_lost_answer_is_answered_again() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    anna.beat()
    lost = harness.heartbeat(anna.request(owned=_owned(anna)))
    assert lost.member_epoch == 2
    again = anna.beat(rebalance_timeout_ms=60_000, topics=("orders",))
    assert (again.error, again.member_epoch) == (ErrorCode.NONE, 2)
    assert again.assignment is not None


def test_a_late_heartbeat_from_before_gives_up_nothing() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    late = anna.request(owned=_owned(anna))  # of the epoch in which she had one
    bob.leave()
    anna.beat()  # has both
    Consumer(harness, "carl").join()
    anna.beat()
    assert harness.consumer.members["anna"].state is MemberState.UNREVOKED_PARTITIONS
    reply = harness.heartbeat(late)
    assert reply.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert harness.consumer.members["anna"].state is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize("epoch", [5, 1])
def test_a_member_of_another_epoch_is_fenced_and_may_join_again(epoch: int) -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    bob.leave()
    settle(anna)
    assert anna.epoch == 3
    assert anna.beat(member_epoch=epoch).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert anna.join().error is ErrorCode.NONE
    assert anna.work == {"orders-0", "orders-1"}


def test_whoever_joins_again_has_not_given_up_what_it_was_asked_to() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    anna.beat()
    anna.join()
    bob.beat()
    assert bob.work == set()
    settle(anna, bob)
    assert len(anna.work) == len(bob.work) == 1


@pytest.mark.parametrize("epoch", [3, -1])
def test_a_member_that_nobody_knows_is_told_so(epoch: int) -> None:
    harness = ConsumerGroupHarness(orders=1)
    stranger = Consumer(harness, "stranger", epoch=epoch)
    assert stranger.send().error is ErrorCode.UNKNOWN_MEMBER_ID
    Consumer(harness, "anna").join()
    stranger.epoch = epoch
    assert stranger.send().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_lets_nobody_in() -> None:
    harness = ConsumerGroupHarness(GroupConfig(consumer_max_size=1), orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    assert Consumer(harness, "bob").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert anna.join().error is ErrorCode.NONE


def test_an_assignor_that_is_not_offered_is_refused_with_those_that_are() -> None:
    harness = ConsumerGroupHarness(orders=1)
    reply = Consumer(harness, "anna", assignor="sticky").join()
    assert reply.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert reply.message is not None
    assert "uniform, range" in reply.message
    assert harness.group is None


def test_most_members_choose_the_assignor() -> None:
    harness = ConsumerGroupHarness(orders=4, bills=4)
    topics = ("orders", "bills")
    consumers = [Consumer(harness, name, topics, assignor="range") for name in ("anna", "bob")]
    for each in consumers:
        each.join()
    settle(*consumers)
    assert consumers[0].work == {"orders-0", "orders-1", "bills-0", "bills-1"}


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": None},
        {"owned": None},
        {"owned": "some"},
        {"topics": None},
        {"instance": ""},
        {"rack": ""},
        {"member": ""},
        {"group": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
    ids=str,
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    harness = ConsumerGroupHarness(orders=1)
    owned = (TopicPartitions(harness.topics.all()["orders"].topic_id, (0,)),)
    changes = {name: owned if value == "some" else value for name, value in fields.items()}
    given = {"rebalance_timeout_ms": 1, "topics": ("orders",), "owned": ()}
    reply = harness.heartbeat(Consumer(harness, "anna").request(**(given | changes)))
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert reply.message
    assert harness.group is None


def test_a_subscription_that_the_log_cannot_take_is_refused_and_costs_nobody_else() -> None:
    harness = ConsumerGroupHarness(GroupConfig(max_record_bytes=10_000), orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    many = tuple(f"topic-{each}" for each in range(2000))
    assert Consumer(harness, "bob", many).join().error is ErrorCode.INVALID_REQUEST
    assert anna.beat().error is ErrorCode.NONE


def test_a_member_that_falls_silent_is_taken_out() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    harness.pass_time(harness.config.consumer_session_timeout_ms - 1)
    bob.beat()
    harness.pass_time(1)
    assert list(harness.consumer.members) == ["bob"]
    settle(bob)
    assert bob.work == {"orders-0", "orders-1"}
    assert anna.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_taken_out() -> None:
    config = GroupConfig(consumer_session_timeout_ms=1_000_000)
    harness = ConsumerGroupHarness(config, orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join(rebalance_timeout_ms=5000)
    held = anna.owned
    bob.join()
    anna.beat()
    harness.pass_time(4999)
    anna.owned = held
    anna.beat()
    assert "anna" in harness.consumer.members
    harness.pass_time(1)
    assert list(harness.consumer.members) == ["bob"]
    settle(bob)
    assert len(bob.work) == 2


def test_a_member_that_gives_up_in_time_stays() -> None:
    config = GroupConfig(consumer_session_timeout_ms=1_000_000)
    harness = ConsumerGroupHarness(config, orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    anna.beat()
    harness.pass_time(59_999)
    anna.beat()
    harness.pass_time(60_000)
    assert set(harness.consumer.members) == {"anna", "bob"}


def test_a_restart_of_the_broker_in_the_middle_changes_nothing() -> None:
    harness = ConsumerGroupHarness(orders=4)
    consumers = [Consumer(harness, name) for name in ("anna", "bob", "carl")]
    for each in consumers:
        each.join()
    consumers[0].beat()
    before = durable(harness.groups)
    harness.restart()
    assert durable(harness.groups) == before
    assert durable(replay_log(compacted(harness.log))) == before
    settle(*consumers)
    assert sorted(len(consumer.work) for consumer in consumers) == [1, 1, 2]


def test_after_a_restart_a_silent_member_is_still_taken_out() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    anna.beat()
    harness.restart()
    assert len([key for key in harness.timers if key.member == "anna"]) == 2
    harness.pass_time(harness.config.consumer_session_timeout_ms)
    assert harness.consumer.state is ConsumerState.EMPTY


def _owned(consumer: Consumer) -> tuple[TopicPartitions, ...]:
    return to_topics(consumer.owned)
