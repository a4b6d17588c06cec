"""Joining, leaving and sharing partitions in a consumer group (KIP-848)."""

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


def test_the_first_member_gets_all_partitions_at_once() -> None:
    harness = ConsumerGroupHarness(orders=3)
    anna = Consumer(harness, "anna")
    reply = anna.join()
    assert (reply.error, reply.member, reply.member_epoch) == (ErrorCode.NONE, "anna", 1)
    assert reply.heartbeat_interval_ms == harness.config.consumer_heartbeat_interval_ms
    assert anna.work == {"orders-0", "orders-1", "orders-2"}
    assert harness.consumer.state is ConsumerState.STABLE


def test_a_missing_member_id_is_generated_in_version_0() -> None:
    harness = ConsumerGroupHarness(orders=1)
    reply = Consumer(harness, "").join(requires_member=False)
    assert reply.error is ErrorCode.NONE
    assert reply.member
    assert list(harness.consumer.members) == [reply.member]


def test_a_partition_is_reassigned_only_after_its_owner_revoked_it() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    assert bob.work == set()
    assert harness.consumer.members["bob"].state is MemberState.UNRELEASED_PARTITIONS
    reply = anna.beat()
    assert reply.member_epoch == 1  # she keeps her epoch until she has revoked the partition
    assert harness.consumer.members["anna"].state is MemberState.UNREVOKED_PARTITIONS
    assert bob.beat().assignment is None
    assert anna.beat().member_epoch == 2
    bob.beat()
    assert anna.work | bob.work == {"orders-0", "orders-1"}
    assert len(anna.work) == len(bob.work) == 1
    assert harness.consumer.state is ConsumerState.STABLE


def test_a_heartbeat_without_owned_partitions_confirms_no_revocation() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    anna.send()
    anna.send()
    assert harness.consumer.members["anna"].state is MemberState.UNREVOKED_PARTITIONS
    assert bob.beat().assignment is None


def test_a_member_waiting_for_partitions_gets_a_short_heartbeat_interval() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    usual_ms = anna.join().heartbeat_interval_ms
    assert bob.join().heartbeat_interval_ms < usual_ms
    anna.beat()
    anna.beat()
    reply = bob.beat()
    assert reply.assignment
    assert reply.heartbeat_interval_ms == usual_ms


def test_the_partitions_of_a_leaving_member_are_reassigned() -> None:
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


def test_the_last_leaving_member_leaves_an_empty_group() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    anna.leave()
    assert harness.consumer.state is ConsumerState.EMPTY
    assert not harness.timers
    assert Consumer(harness, "bob").join().member_epoch == 3


def test_a_heartbeat_without_changes_writes_nothing_and_gets_no_assignment() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    anna.beat()
    written = len(harness.log)
    reply = anna.beat()
    assert reply.assignment is None
    assert len(harness.log) == written


def test_a_full_heartbeat_gets_the_whole_assignment() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    reply = anna.beat(rebalance_timeout_ms=60_000, topics=("orders",))
    assert reply.assignment == (TopicPartitions(harness.topics.all()["orders"].topic_id, (0,)),)


def test_a_new_subscription_gets_a_new_assignment() -> None:
    harness = ConsumerGroupHarness(orders=1, bills=1)
    anna = Consumer(harness, "anna")
    anna.join()
    anna.beat(topics=("orders", "bills"))
    assert anna.work == {"orders-0", "bills-0"}
    anna.beat(topics=("bills",))
    settle(anna)
    assert anna.work == {"bills-0"}


def test_a_heartbeat_is_repeated_after_a_lost_response() -> None:
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


def test_a_late_heartbeat_of_an_older_epoch_confirms_no_revocation() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), Consumer(harness, "bob")
    anna.join()
    bob.join()
    settle(anna, bob)
    late = anna.request(owned=_owned(anna))  # from the epoch in which she owned one
    bob.leave()
    anna.beat()  # owns both
    Consumer(harness, "carl").join()
    anna.beat()
    assert harness.consumer.members["anna"].state is MemberState.UNREVOKED_PARTITIONS
    reply = harness.heartbeat(late)
    assert reply.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert harness.consumer.members["anna"].state is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize("epoch", [5, 1])
def test_a_member_with_a_stale_epoch_is_fenced_and_may_join_again(epoch: int) -> None:
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


def test_joining_again_confirms_no_revocation() -> None:
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
def test_an_unknown_member_gets_unknown_member_id(epoch: int) -> None:
    harness = ConsumerGroupHarness(orders=1)
    stranger = Consumer(harness, "stranger", epoch=epoch)
    assert stranger.send().error is ErrorCode.UNKNOWN_MEMBER_ID
    Consumer(harness, "anna").join()
    stranger.epoch = epoch
    assert stranger.send().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_rejects_new_members() -> None:
    harness = ConsumerGroupHarness(GroupConfig(consumer_max_size=1), orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    assert Consumer(harness, "bob").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert anna.join().error is ErrorCode.NONE


def test_an_unsupported_assignor_is_rejected_with_a_list_of_supported_ones() -> None:
    harness = ConsumerGroupHarness(orders=1)
    reply = Consumer(harness, "anna", assignor="sticky").join()
    assert reply.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert reply.message is not None
    assert "uniform, range" in reply.message
    assert harness.group is None


def test_the_majority_chooses_the_assignor() -> None:
    harness = ConsumerGroupHarness(orders=4, bills=4)
    topics = ("orders", "bills")
    consumers = [Consumer(harness, name, topics, assignor="range") for name in ("anna", "bob")]
    for consumer in consumers:
        consumer.join()
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
def test_an_invalid_request_is_rejected(fields: dict[str, object]) -> None:
    harness = ConsumerGroupHarness(orders=1)
    owned = (TopicPartitions(harness.topics.all()["orders"].topic_id, (0,)),)
    changes = {name: owned if value == "some" else value for name, value in fields.items()}
    given = {"rebalance_timeout_ms": 1, "topics": ("orders",), "owned": ()}
    reply = harness.heartbeat(Consumer(harness, "anna").request(**(given | changes)))
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert reply.message
    assert harness.group is None


def test_a_subscription_too_large_for_a_record_is_rejected() -> None:
    harness = ConsumerGroupHarness(GroupConfig(max_record_bytes=10_000), orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    many = tuple(f"topic-{number}" for number in range(2000))
    assert Consumer(harness, "bob", many).join().error is ErrorCode.INVALID_REQUEST
    assert anna.beat().error is ErrorCode.NONE


def test_a_member_without_heartbeats_is_removed() -> None:
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


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
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


def test_a_member_that_revokes_in_time_stays() -> None:
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


def test_a_coordinator_restart_during_a_rebalance_changes_nothing() -> None:
    harness = ConsumerGroupHarness(orders=4)
    consumers = [Consumer(harness, name) for name in ("anna", "bob", "carl")]
    for consumer in consumers:
        consumer.join()
    consumers[0].beat()
    before = durable(harness.groups)
    harness.restart()
    assert durable(harness.groups) == before
    assert durable(replay_log(compacted(harness.log))) == before
    settle(*consumers)
    assert sorted(len(consumer.work) for consumer in consumers) == [1, 1, 2]


def test_sessions_and_revocations_time_out_after_a_coordinator_restart_too() -> None:
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
