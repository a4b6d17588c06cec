"""Descriptions of classic groups, and the retention of their offsets."""

from tests.unit.coordinators.group.classic_harness import (
    ClassicGroupHarness,
    Client,
    settle,
    subscription,
    work_of,
)

from penstock.coordinators.group.classic.group import ClassicGroup
from penstock.coordinators.group.classic.state import ClassicState
from penstock.coordinators.group.classic.subscription import find_topics
from penstock.coordinators.group.requests import DescribedMember, GroupSummary, MemberProtocol
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import SetTimer


def test_a_stable_group_is_described_with_subscriptions_and_assignments() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna", instance="anna-1")
    settle(anna)
    described = harness.group.describe()
    assert (described.state, described.protocol_type, described.protocol) == (
        "Stable",
        "consumer",
        "range",
    )
    assert described.members == (
        DescribedMember(
            member=anna.id,
            instance="anna-1",
            client_id="anna",
            client_host="/127.0.0.1",
            metadata=subscription("orders"),
            assignment=work_of(anna.id, 1),
        ),
    )


def test_a_rebalancing_group_is_described_without_a_protocol() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    settle(anna)
    Client(harness, "ben").come()
    described = harness.group.describe()
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert len(described.members) == 2
    assert {member.metadata for member in described.members} == {b""}


def test_groups_are_listed_with_their_type_and_state() -> None:
    harness = ClassicGroupHarness()
    settle(Client(harness, "anna"))
    assert harness.group.list_group() == GroupSummary("billing", "consumer", "Stable", "classic")
    assert ClassicGroup("plain").list_group() == GroupSummary("plain", "", "Empty", "classic")


def test_retention_of_offsets_without_a_group_starts_at_their_commit() -> None:
    assert ClassicGroup("plain").expiry_base_ms("orders", 5) == 5


def test_retention_in_an_empty_group_starts_when_it_became_empty_or_at_a_later_commit() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    settle(anna)
    harness.pass_time(100)
    anna.leave()
    left_ms = harness.now_ms
    assert harness.group.expiry_base_ms("orders", 5) == left_ms
    assert harness.group.expiry_base_ms("orders", left_ms + 7) == left_ms + 7


def test_offsets_of_unsubscribed_topics_expire_in_a_stable_group() -> None:
    harness = ClassicGroupHarness()
    settle(Client(harness, "anna", topics=("orders",)))
    assert harness.group.expiry_base_ms("orders", 5) is None
    assert harness.group.expiry_base_ms("returns", 5) == 5


def test_offsets_do_not_expire_during_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    settle(Client(harness, "anna"))
    Client(harness, "ben").come()
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    assert harness.group.expiry_base_ms("returns", 5) is None


def test_offsets_do_not_expire_if_subscriptions_are_unknown() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna", requires_known_member=False)
    anna.join(protocols=(MemberProtocol("range", b"\x00"),))
    anna.assign()
    assert harness.group.state is ClassicState.STABLE
    assert harness.group.expiry_base_ms("orders", 5) is None


def test_topics_are_read_from_every_version_of_a_subscription() -> None:
    oldest = subscription("orders", "returns")
    newer = b"\x00\x03" + oldest[2:] + b"\x00\x00\x00\x00" + b"more fields"
    assert find_topics(oldest) == find_topics(newer) == frozenset({"orders", "returns"})


def test_other_metadata_is_not_read_as_a_subscription() -> None:
    assert find_topics(b"") is None
    assert find_topics(b"\x00\x01\x7f\xff\xff\xff") is None
    assert find_topics(b"\x00\x01\x00\x00\x00\x01\xff\xff") is None


def test_a_commit_resets_the_session_of_its_member() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna", session_timeout_ms=7000)
    settle(anna)
    key = TimerKey("billing", "session", anna.id)
    assert harness.group.session_timer(anna.id, harness.config) == (SetTimer(key, 7000),)
    assert harness.group.session_timer("", harness.config) == ()


def test_only_a_group_without_members_and_record_is_vacant() -> None:
    assert ClassicGroupHarness().group.is_vacant
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    anna.join()
    assert not harness.group.is_vacant, "an id was handed out"
    settle(anna)
    anna.leave()
    assert not harness.group.is_vacant, "it is stored"


def test_a_group_is_vacant_again_when_its_only_pending_member_expires() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    anna.join()
    harness.pass_time(anna.session_timeout_ms)
    assert harness.group.is_vacant
