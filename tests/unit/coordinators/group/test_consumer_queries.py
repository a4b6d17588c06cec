"""What may be asked about a group of the newer protocol, and who may commit under its name."""

import pytest
from tests.unit.coordinators.group.consumer_desk import GROUP, Consumer, ConsumerDesk, settle
from tests.unit.coordinators.group.mixed_desk import ClassicConsumer

from penstock.coordinators.group import either_protocol as consumer_or_classic
from penstock.coordinators.group.consumer import protocol as consumer
from penstock.coordinators.group.consumer.queries import (
    check_commit,
    check_delete_offsets,
    check_fetch,
    describe,
    expiry_base_ms,
    list_group,
)
from penstock.coordinators.group.consumer.requests import MemberKind, NamedPartitions
from penstock.coordinators.group.requests import GroupListing
from penstock.model.errors import ErrorCode


def pair() -> tuple[ConsumerDesk, Consumer, ClassicConsumer]:
    desk = ConsumerDesk(orders=2)
    anna, bob = Consumer(desk, "anna"), ClassicConsumer(desk, "bob")
    for _ in range(6):
        settle(anna, rounds=1)
        bob.go_on()
    return desk, anna, bob


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
    """`epoch` is counted from the member's."""
    desk, anna, bob = pair()
    member = bob.id if who == "bob" else who
    known = anna.epoch
    assert bob.generation == known
    knows_epochs = version >= 9
    found = check_commit(desk.living, member, known + epoch, knows_epochs=knows_epochs)
    assert found is expected


def test_anyone_may_commit_to_a_group_without_members() -> None:
    desk = ConsumerDesk(orders=1)
    anna = Consumer(desk, "anna")
    anna.join()
    assert check_commit(desk.living, "", -1, knows_epochs=False) is ErrorCode.UNKNOWN_MEMBER_ID
    anna.leave()
    assert check_commit(desk.living, "", -1, knows_epochs=False) is ErrorCode.NONE
    assert check_commit(desk.living, "anna", 1, knows_epochs=True) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transaction_commits_whatever_its_requests_version_knows() -> None:
    desk, anna, _ = pair()
    found = check_commit(desk.living, "anna", anna.epoch, knows_epochs=False, is_transactional=True)
    assert found is ErrorCode.NONE


def test_a_member_fetches_at_its_epoch_and_others_as_they_like() -> None:
    desk, anna, bob = pair()
    group = desk.living
    assert check_fetch(group, None, -1) is ErrorCode.NONE
    assert check_fetch(group, "anna", anna.epoch) is ErrorCode.NONE
    assert check_fetch(group, "anna", anna.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert check_fetch(group, bob.id, bob.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert check_fetch(group, "stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_stay() -> None:
    desk = ConsumerDesk(orders=1, bills=1, notes=1)
    anna = Consumer(desk, "anna", ("orders",), regex="b.*")
    anna.join()
    group = desk.living
    for topic in ("orders", "bills"):
        assert check_delete_offsets(group, topic) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert expiry_base_ms(group, topic, 5) is None
    assert check_delete_offsets(group, "notes") is ErrorCode.NONE
    assert expiry_base_ms(group, "notes", 5) == 5
    anna.leave()
    assert check_delete_offsets(group, "orders") is ErrorCode.NONE
    assert expiry_base_ms(group, "orders", 5) == 5


def test_a_description_shows_what_members_have_and_shall_have() -> None:
    desk, _, bob = pair()
    Consumer(desk, "carl", regex="orders").join()
    told = describe(desk.living, desk.config, desk.topics)
    assert (told.group, told.error, told.state) == (GROUP, ErrorCode.NONE, "Reconciling")
    assert (told.group_epoch, told.assignment_epoch, told.assignor) == (3, 3, "uniform")
    members = {member.member: member for member in told.members}
    orders = desk.topics.all()["orders"].topic_id
    anna, carl = members["anna"], members["carl"]
    assert (anna.client_id, anna.client_host, anna.topics) == ("app", "/10.0.0.1", ("orders",))
    assert (anna.kind, members[bob.id].kind) == (MemberKind.CONSUMER, MemberKind.CLASSIC)
    assert anna.assignment == (NamedPartitions(orders, "orders", (0,)),)
    assert anna.member_epoch == 2
    assert (carl.assignment, carl.topic_regex) == ((), "orders")
    shall = sorted(one for member in told.members for _, _, parts in member.target for one in parts)
    assert shall == [0, 1]


def test_a_description_leaves_out_topics_that_are_gone() -> None:
    desk = ConsumerDesk(orders=1)
    Consumer(desk, "anna").join()
    desk.topics.delete("orders")
    (anna,) = describe(desk.living, desk.config, desk.topics).members
    assert (anna.assignment, anna.target) == ((), ())


def test_the_states_of_a_group_are_listed() -> None:
    desk = ConsumerDesk(orders=2)
    anna = Consumer(desk, "anna")
    anna.join()
    assert list_group(desk.living) == GroupListing(GROUP, "consumer", "Stable", "consumer")
    Consumer(desk, "bob").join()
    assert list_group(desk.living).state == "Reconciling"
    anna.leave()
    assert list_group(desk.living).state == "Assigning"
    desk.pass_time(desk.config.consumer_session_timeout_ms)
    assert list_group(desk.living).state == "Empty"


def test_each_protocol_describes_its_own_groups() -> None:
    desk, _, _ = pair()
    told = consumer_or_classic.describe(desk.living)
    assert (told.error, told.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    other = ConsumerDesk(orders=1)
    ClassicConsumer(other, "bob").join()
    for group in (other.group, None):
        found = consumer_or_classic.consumer_describe(GROUP, group, desk.config, desk.topics)
        assert (found.error, found.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_a_group_is_deleted_when_nobody_is_in_it() -> None:
    desk = ConsumerDesk(orders=1)
    anna = Consumer(desk, "anna")
    anna.join()
    assert desk.carry_out(consumer.delete(desk.living)) is ErrorCode.NON_EMPTY_GROUP
    anna.leave()
    assert desk.carry_out(consumer.delete(desk.living)) is ErrorCode.NONE
    assert desk.group is None


def test_a_committing_classic_member_is_alive_and_others_must_say_so_themselves() -> None:
    desk, _, bob = pair()
    (timer,) = consumer.session_timer(desk.living, bob.id, desk.config)
    assert (timer.key.member, timer.delay_ms) == (bob.id, 10_000)
    assert consumer.session_timer(desk.living, "anna", desk.config) == ()
    assert consumer.session_timer(desk.living, "stranger", desk.config) == ()
