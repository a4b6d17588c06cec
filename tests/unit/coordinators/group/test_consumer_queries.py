"""Descriptions of consumer groups, and who may commit under their name."""

import pytest
from tests.unit.coordinators.group.consumer_harness import (
    GROUP,
    Consumer,
    ConsumerGroupHarness,
    settle,
)
from tests.unit.coordinators.group.fake_topics import FakeTopics
from tests.unit.coordinators.group.mixed_members import ClassicConsumer

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.queries import (
    check_commit,
    check_delete_offsets,
    check_fetch,
    describe,
    expiry_base_ms,
    list_group,
)
from penstock.coordinators.group.consumer.requests import MemberKind, NamedPartitions
from penstock.coordinators.group.requests import GroupSummary
from penstock.coordinators.group.state import GroupShardState
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import SetTimer
from penstock.model.errors import ErrorCode


def pair() -> tuple[ConsumerGroupHarness, Consumer, ClassicConsumer]:
    harness = ConsumerGroupHarness(orders=2)
    anna, bob = Consumer(harness, "anna"), ClassicConsumer(harness, "bob")
    for _ in range(6):
        settle(anna, rounds=1)
        bob.go_on()
    return harness, anna, bob


@pytest.mark.parametrize(
    ("who", "epoch", "version", "expected"),
    [
        ("anna", 0, 9, ErrorCode.NONE),
        ("anna", -1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("anna", 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("anna", 0, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("bob", 0, 8, ErrorCode.NONE),
        ("bob", 1, 9, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 0, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -9, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_commits_at_its_epoch(
    who: str, epoch: int, version: int, expected: ErrorCode
) -> None:
    """`epoch` is relative to the member's."""
    harness, anna, bob = pair()
    member = bob.id if who == "bob" else who
    current_epoch = anna.epoch
    assert bob.generation == current_epoch
    knows_epochs = version >= 9
    code = check_commit(harness.consumer, member, current_epoch + epoch, knows_epochs=knows_epochs)
    assert code is expected


def test_anyone_may_commit_to_a_group_without_members() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    assert check_commit(harness.consumer, "", -1, knows_epochs=False) is ErrorCode.UNKNOWN_MEMBER_ID
    anna.leave()
    assert check_commit(harness.consumer, "", -1, knows_epochs=False) is ErrorCode.NONE
    assert (
        check_commit(harness.consumer, "anna", 1, knows_epochs=True) is ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_transaction_commits_offsets_in_any_request_version() -> None:
    harness, anna, _ = pair()
    code = check_commit(
        harness.consumer, "anna", anna.epoch, knows_epochs=False, is_transactional=True
    )
    assert code is ErrorCode.NONE


def test_a_member_fetches_at_its_epoch_and_others_without_a_check() -> None:
    harness, anna, bob = pair()
    group = harness.consumer
    assert check_fetch(group, None, -1) is ErrorCode.NONE
    assert check_fetch(group, "anna", anna.epoch) is ErrorCode.NONE
    assert check_fetch(group, "anna", anna.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert check_fetch(group, bob.id, bob.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert check_fetch(group, "stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    harness = ConsumerGroupHarness(orders=1, bills=1, notes=1)
    anna = Consumer(harness, "anna", ("orders",), regex="b.*")
    anna.join()
    group = harness.consumer
    for topic in ("orders", "bills"):
        assert check_delete_offsets(group, topic) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert expiry_base_ms(group, topic, 5) is None
    assert check_delete_offsets(group, "notes") is ErrorCode.NONE
    assert expiry_base_ms(group, "notes", 5) == 5
    anna.leave()
    assert check_delete_offsets(group, "orders") is ErrorCode.NONE
    assert expiry_base_ms(group, "orders", 5) == 5


def test_a_description_has_current_and_target_assignments() -> None:
    harness, _, bob = pair()
    Consumer(harness, "carl", regex="orders").join()
    described = describe(harness.consumer, harness.config, harness.topics)
    assert (described.group, described.error, described.state) == (
        GROUP,
        ErrorCode.NONE,
        "Reconciling",
    )
    assert (described.group_epoch, described.assignment_epoch, described.assignor) == (
        3,
        3,
        "uniform",
    )
    members = {member.member: member for member in described.members}
    orders = harness.topics.all()["orders"].topic_id
    anna, carl = members["anna"], members["carl"]
    assert (anna.client_id, anna.client_host, anna.topics) == ("app", "/10.0.0.1", ("orders",))
    assert (anna.kind, members[bob.id].kind) == (MemberKind.CONSUMER, MemberKind.CLASSIC)
    assert anna.assignment == (NamedPartitions(orders, "orders", (0,)),)
    assert anna.member_epoch == 2
    assert (carl.assignment, carl.topic_regex) == ((), "orders")
    shall = sorted(
        one for member in described.members for _, _, parts in member.target for one in parts
    )
    assert shall == [0, 1]


def test_a_description_omits_deleted_topics() -> None:
    harness = ConsumerGroupHarness(orders=1)
    Consumer(harness, "anna").join()
    harness.topics.delete("orders")
    (anna,) = describe(harness.consumer, harness.config, harness.topics).members
    assert (anna.assignment, anna.target) == ((), ())


def test_the_states_of_a_group_are_listed() -> None:
    harness = ConsumerGroupHarness(orders=2)
    anna = Consumer(harness, "anna")
    anna.join()
    assert list_group(harness.consumer) == GroupSummary(GROUP, "consumer", "Stable", "consumer")
    Consumer(harness, "bob").join()
    assert list_group(harness.consumer).state == "Reconciling"
    anna.leave()
    assert list_group(harness.consumer).state == "Assigning"
    harness.pass_time(harness.config.consumer_session_timeout_ms)
    assert list_group(harness.consumer).state == "Empty"


def test_each_protocol_describes_its_own_groups() -> None:
    harness, _, _ = pair()
    described = harness.consumer.describe()
    assert (described.error, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    other = ConsumerGroupHarness(orders=1)
    ClassicConsumer(other, "bob").join()
    for state in (other.state, GroupShardState(topics=FakeTopics(), config=GroupConfig)):
        missing = state.consumer_describe(GROUP)
        assert (missing.error, missing.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_only_an_empty_group_is_deleted() -> None:
    harness = ConsumerGroupHarness(orders=1)
    anna = Consumer(harness, "anna")
    anna.join()
    assert (
        harness.carry_out(harness.consumer.delete(harness.environment)) is ErrorCode.NON_EMPTY_GROUP
    )
    anna.leave()
    assert harness.carry_out(harness.consumer.delete(harness.environment)) is ErrorCode.NONE
    assert harness.group is None


def test_a_commit_resets_the_session_of_a_classic_member_only() -> None:
    harness, _, bob = pair()
    (timer,) = harness.consumer.session_timer(bob.id, harness.config)
    assert timer == SetTimer(TimerKey(GROUP, "consumer-session", bob.id), 10_000)
    assert harness.consumer.session_timer("anna", harness.config) == ()
    assert harness.consumer.session_timer("stranger", harness.config) == ()
