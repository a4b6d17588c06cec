"""Consumer groups follow created, extended and deleted topics, and patterns of names."""

import pytest
from tests.unit.coordinators.group.consumer_harness import Consumer, ConsumerGroupHarness, settle

from penstock.model.errors import ErrorCode


def test_a_subscribed_topic_is_assigned_when_it_is_created() -> None:
    harness = ConsumerGroupHarness()
    anna = Consumer(harness, "anna")
    reply = anna.join()
    assert (reply.error, anna.work) == (ErrorCode.NONE, set())
    harness.topics.create("orders", 2)
    harness.change_topics()
    anna.beat()
    assert anna.work == {"orders-0", "orders-1"}


def test_new_partitions_are_assigned() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    mine = anna.work
    harness.topics.grow("orders", 4)
    harness.change_topics()
    settle(anna, bob)
    assert anna.work > mine
    assert len(anna.work) == len(bob.work) == 2


def test_a_deleted_topic_is_revoked() -> None:
    harness = ConsumerGroupHarness(orders=1, bills=1)
    anna = Consumer(harness, "anna", ("orders", "bills"))
    anna.join()
    harness.topics.delete("orders")
    harness.change_topics()
    settle(anna)
    assert anna.work == {"bills-0"}


def test_a_recreated_topic_is_another_topic() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    old = anna.owned
    harness.topics.create("orders", 1)
    harness.change_topics()
    settle(anna)
    assert anna.work == {"orders-0"}
    assert anna.owned != old


def test_a_change_of_unsubscribed_topics_does_not_bump_the_epoch() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    harness.topics.create("bills", 3)
    harness.change_topics()
    anna.beat()
    assert harness.consumer.epoch == 1


def test_a_change_of_topics_during_a_restart_is_detected() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    harness.topics.grow("orders", 3)
    harness.restart()
    anna.beat()
    assert anna.work == {"orders-0", "orders-1", "orders-2"}


def test_a_restart_with_the_same_topics_does_not_bump_the_epoch() -> None:
    harness = ConsumerGroupHarness(orders=3)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    harness.restart()
    settle(anna, bob)
    assert harness.consumer.epoch == 2


def test_a_missed_change_of_topics_is_detected_at_the_refresh_interval() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    anna.beat()
    harness.topics.grow("orders", 2)
    for _ in range(harness.config.consumer_regex_refresh_interval_ms // 30_000):
        harness.pass_time(30_000)
        anna.beat()
    assert anna.work == {"orders-0", "orders-1"}


def test_a_pattern_matches_new_topics() -> None:
    harness = ConsumerGroupHarness(orders_eu=1, bills=1)
    anna = Consumer(harness, "anna", None, regex="orders_.*")
    anna.join()
    anna.beat()
    assert anna.work == {"orders_eu-0"}
    harness.topics.create("orders_us", 1)
    harness.change_topics()
    anna.beat()
    assert anna.work == {"orders_eu-0", "orders_us-0"}


def test_a_pattern_can_be_combined_with_names_and_removed() -> None:
    harness = ConsumerGroupHarness(orders=1, bills=1)
    anna = Consumer(harness, "anna", ("orders",), regex="b.*")
    anna.join()
    anna.beat()
    assert anna.work == {"orders-0", "bills-0"}
    anna.beat(topic_regex="")
    settle(anna)
    assert anna.work == {"orders-0"}
    assert harness.consumer.members["anna"].subscription.topic_regex is None


def test_topics_by_name_are_assigned_first_and_matches_with_the_next_heartbeat() -> None:
    harness = ConsumerGroupHarness(orders=1, bills=1, books=1)
    anna = Consumer(harness, "anna", ("orders",), regex="bi.*")
    joined = anna.join()
    assert anna.work == {"orders-0"}
    assert joined.heartbeat_interval_ms < harness.config.consumer_heartbeat_interval_ms
    beaten = anna.beat()
    assert anna.work == {"orders-0", "bills-0"}
    assert beaten.heartbeat_interval_ms == harness.config.consumer_heartbeat_interval_ms
    anna.beat(topics=("bills",), topic_regex="bo.*")
    settle(anna)
    assert anna.work == {"bills-0", "books-0"}


def test_a_new_pattern_alone_revokes_nothing_before_its_matches_are_known() -> None:
    harness = ConsumerGroupHarness(a1=1, a2=1)
    anna = Consumer(harness, "anna", None, regex="a.*")
    anna.join()
    anna.beat()
    epoch = anna.epoch
    anna.beat(topic_regex="a1.*|a2.*")
    assert (anna.work, anna.epoch) == ({"a1-0", "a2-0"}, epoch)
    anna.beat()
    assert (anna.work, anna.epoch) == ({"a1-0", "a2-0"}, epoch)


def test_a_pattern_that_another_member_has_is_matched_at_once() -> None:
    harness = ConsumerGroupHarness(a1=2)
    anna = Consumer(harness, "anna", None, regex="a.*")
    anna.join()
    anna.beat()
    harness.restart()
    Consumer(harness, "bob", None, regex="a.*").join()
    targets = harness.consumer.targets
    assert {len(partitions) for partitions in targets["bob"].values()} == {1}


def test_a_pattern_does_not_match_internal_topics() -> None:
    harness = ConsumerGroupHarness(orders=1, __consumer_offsets=50)
    anna = Consumer(harness, "anna", None, regex=".*")
    anna.join()
    anna.beat()
    assert anna.work == {"orders-0"}


@pytest.mark.parametrize("regex", ["orders[", "(a", "a**", "(?=orders)", r"(a)\1"])
def test_an_invalid_pattern_is_rejected(regex: str) -> None:
    harness = ConsumerGroupHarness(orders=1)
    reply = Consumer(harness, "anna", None, regex=regex).join()
    assert reply.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert reply.message is not None
    assert "character" in reply.message
    assert harness.group is None


def test_members_with_different_patterns_share_topics_that_both_match() -> None:
    harness = ConsumerGroupHarness(a1=2, a2=2, b1=2)
    anna = Consumer(harness, "anna", None, regex="a.*")
    bob = Consumer(harness, "bob", None, regex=".*1")
    anna.join()
    bob.join()
    settle(anna, bob)
    assert len(anna.work) == len(bob.work) == 3
    assert {"a2-0", "a2-1"} < anna.work
    assert {"b1-0", "b1-1"} < bob.work
