"""Groups follow the topics: new ones, larger ones, deleted ones, and patterns of names."""

import pytest
from tests.unit.coordinators.group.consumer_desk import Consumer, ConsumerDesk, settle

from penstock.model.errors import ErrorCode


def test_a_topic_that_is_not_there_yet_is_had_when_it_comes() -> None:
    desk = ConsumerDesk()
    anna = Consumer(desk, "anna")
    answer = anna.join()
    assert (answer.error, anna.work) == (ErrorCode.NONE, set())
    desk.topics.create("orders", 2)
    desk.change_topics()
    anna.beat()
    assert anna.work == {"orders-0", "orders-1"}


def test_new_partitions_are_shared_out() -> None:
    desk = ConsumerDesk(orders=2)
    anna, bob = Consumer(desk, "anna"), Consumer(desk, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    mine = anna.work
    desk.topics.grow("orders", 4)
    desk.change_topics()
    settle(anna, bob)
    assert anna.work > mine
    assert len(anna.work) == len(bob.work) == 2


def test_a_deleted_topic_is_given_up() -> None:
    desk = ConsumerDesk(orders=1, bills=1)
    anna = Consumer(desk, "anna", ("orders", "bills"))
    anna.join()
    desk.topics.delete("orders")
    desk.change_topics()
    settle(anna)
    assert anna.work == {"bills-0"}


def test_a_topic_that_is_made_anew_is_another_topic() -> None:
    desk = ConsumerDesk(orders=1)
    anna = Consumer(desk, "anna")
    anna.join()
    old = anna.owned
    desk.topics.create("orders", 1)
    desk.change_topics()
    settle(anna)
    assert anna.work == {"orders-0"}
    assert anna.owned != old


def test_a_change_to_topics_of_others_bumps_no_epoch() -> None:
    desk = ConsumerDesk(orders=1)
    anna = Consumer(desk, "anna")
    anna.join()
    desk.topics.create("bills", 3)
    desk.change_topics()
    anna.beat()
    assert desk.living.epoch == 1


def test_what_changed_while_the_broker_was_down_is_noticed() -> None:
    desk = ConsumerDesk(orders=1)
    anna = Consumer(desk, "anna")
    anna.join()
    desk.topics.grow("orders", 3)
    desk.restart()
    anna.beat()
    assert anna.work == {"orders-0", "orders-1", "orders-2"}


def test_a_restart_with_the_same_topics_bumps_no_epoch() -> None:
    desk = ConsumerDesk(orders=3)
    anna, bob = Consumer(desk, "anna"), Consumer(desk, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    desk.restart()
    settle(anna, bob)
    assert desk.living.epoch == 2


def test_a_change_that_nobody_told_of_is_seen_in_time() -> None:
    desk = ConsumerDesk(orders=1)
    anna = Consumer(desk, "anna")
    anna.join()
    anna.beat()
    desk.topics.grow("orders", 2)
    for _ in range(desk.config.consumer_regex_refresh_interval_ms // 30_000):
        desk.pass_time(30_000)
        anna.beat()
    assert anna.work == {"orders-0", "orders-1"}


def test_a_pattern_takes_topics_as_they_come() -> None:
    desk = ConsumerDesk(orders_eu=1, bills=1)
    anna = Consumer(desk, "anna", None, regex="orders_.*")
    anna.join()
    assert anna.work == {"orders_eu-0"}
    desk.topics.create("orders_us", 1)
    desk.change_topics()
    anna.beat()
    assert anna.work == {"orders_eu-0", "orders_us-0"}


def test_a_pattern_may_be_had_beside_names_and_taken_back() -> None:
    desk = ConsumerDesk(orders=1, bills=1)
    anna = Consumer(desk, "anna", ("orders",), regex="b.*")
    anna.join()
    assert anna.work == {"orders-0", "bills-0"}
    anna.beat(topic_regex="")
    settle(anna)
    assert anna.work == {"orders-0"}
    assert desk.living.members["anna"].subscription.topic_regex is None


def test_a_pattern_takes_no_internal_topics() -> None:
    desk = ConsumerDesk(orders=1, __consumer_offsets=50)
    anna = Consumer(desk, "anna", None, regex=".*")
    anna.join()
    assert anna.work == {"orders-0"}


@pytest.mark.parametrize("regex", ["orders[", "(a", "a**", "(?=orders)", r"(a)\1"])
def test_what_is_no_pattern_is_refused(regex: str) -> None:
    desk = ConsumerDesk(orders=1)
    answer = Consumer(desk, "anna", None, regex=regex).join()
    assert answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.message is not None
    assert "character" in answer.message
    assert desk.group is None


def test_members_with_different_patterns_share_what_both_match() -> None:
    desk = ConsumerDesk(a1=2, a2=2, b1=2)
    anna = Consumer(desk, "anna", None, regex="a.*")
    bob = Consumer(desk, "bob", None, regex=".*1")
    anna.join()
    bob.join()
    settle(anna, bob)
    assert len(anna.work) == len(bob.work) == 3
    assert {"a2-0", "a2-1"} < anna.work
    assert {"b1-0", "b1-1"} < bob.work
