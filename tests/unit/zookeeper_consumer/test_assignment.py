"""Shares of a group in ZooKeeper: Kafka 0.8.2's range and the rule that rounds up."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.zookeeper_consumer.views import CEIL_RANGE, RANGE, registration_of, view_of

from penstock.zookeeper_consumer.assignment import (
    RegisteredMember,
    assign,
    find_conflict,
    share_of,
    shares,
    without_conflicts,
)
from penstock.zookeeper_consumer.group_znodes import (
    AssignmentRule,
    Registration,
    SubscriptionPattern,
)

rules = st.sampled_from([RANGE, CEIL_RANGE])


@pytest.mark.parametrize(
    ("partitions", "readers", "by_range", "rounded_up"),
    [
        (4, 3, [2, 1, 1], [2, 2, 0]),
        (10, 4, [3, 3, 2, 2], [3, 3, 3, 1]),
        (6, 3, [2, 2, 2], [2, 2, 2]),
        (2, 4, [1, 1, 0, 0], [1, 1, 0, 0]),
        (0, 2, [0, 0], [0, 0]),
    ],
)
def test_shares_are_as_large_as_each_rule_says(
    partitions: int, readers: int, by_range: list[int], rounded_up: list[int]
) -> None:
    numbers = range(partitions)
    assert [len(share) for share in shares(numbers, readers, RANGE)] == by_range
    assert [len(share) for share in shares(numbers, readers, CEIL_RANGE)] == rounded_up


@given(st.lists(st.integers(0, 999), unique=True).map(sorted), st.integers(1, 40), rules)
def test_shares_are_runs_that_cover_every_partition_once(
    partitions: list[int], readers: int, rule: AssignmentRule
) -> None:
    cut = shares(partitions, readers, rule)
    assert [partition for share in cut for partition in share] == partitions
    assert len(cut) == readers
    sizes = [len(share) for share in cut]
    assert sizes == sorted(sizes, reverse=True)
    if rule is RANGE:
        assert max(sizes) - min(sizes) <= 1
    else:
        most = ceil(len(partitions) / readers)
        full = len(partitions) // most if most else 0
        assert sizes[:full] == [most] * full


members = st.lists(
    st.tuples(
        st.text("abc-", min_size=1, max_size=4),
        st.dictionaries(st.sampled_from(["t", "u", "v"]), st.integers(1, 3), min_size=1),
    ),
    unique_by=lambda member: member[0],
    max_size=6,
)


@given(members, st.dictionaries(st.sampled_from(["t", "u", "v"]), st.integers(0, 9)), rules)
def test_members_with_one_view_leave_nothing_out_and_share_nothing(
    members: list[tuple[str, dict[str, int]]], partitions: dict[str, int], rule: AssignmentRule
) -> None:
    group = [
        RegisteredMember(
            name, Registration(pattern=SubscriptionPattern.STATIC, subscription=subscription)
        )
        for name, subscription in members
    ]
    view = view_of(group, partitions)
    claimed = [tp for member in group for tp in share_of(view, member.id, rule)]
    subscribed = {topic for _, subscription in members for topic in subscription}
    expected = [
        (topic, number)
        for topic, count in partitions.items()
        if topic in subscribed
        for number in range(count)
    ]
    threads = [thread for member in group for thread in share_of(view, member.id, rule).values()]
    if len({member.id for member in group}) == len({t.rpartition("-")[0] for t in threads}):
        assert sorted(claimed) == sorted(expected)
    assert set(claimed) == set(expected)


def test_threads_share_in_the_order_of_their_names() -> None:
    view = view_of(
        [
            RegisteredMember("g_b", registration_of("t", streams=2)),
            RegisteredMember("g_a", registration_of("t")),
        ],
        {"t": 5},
    )
    assert [thread for _, thread in sorted(assign(view, RANGE).items())] == [
        *("g_a-0", "g_a-0", "g_b-0", "g_b-0", "g_b-1")
    ]


def test_each_topic_is_shared_by_its_own_subscribers() -> None:
    lists_all = Registration(pattern=SubscriptionPattern.WHITE_LIST, subscription={"t|u": 1})
    view = view_of(
        [RegisteredMember("a", registration_of("t")), RegisteredMember("b", lists_all)],
        {"t": 2, "u": 2},
    )
    assert sorted(share_of(view, "a", RANGE)) == [("t", 0)]
    assert sorted(share_of(view, "b", RANGE)) == [("t", 1), ("u", 0), ("u", 1)]


def member(
    name: str, rule: AssignmentRule, czxid: int, *, is_ours: bool = True
) -> RegisteredMember:
    return RegisteredMember(name, registration_of("t", rule=rule, names_rule=is_ours), czxid)


def test_a_member_of_another_rule_is_refused_before_it_registers() -> None:
    group = (member("a", RANGE, 5),)
    assert find_conflict(member("b", CEIL_RANGE, 0), group, is_registered=False) == group[0]
    assert find_conflict(member("b", RANGE, 0), group, is_registered=False) is None


def test_of_two_that_came_at_once_the_later_gives_way() -> None:
    early, late = member("a", RANGE, 5), member("b", CEIL_RANGE, 6)
    assert find_conflict(early, (early, late), is_registered=True) is None
    assert find_conflict(late, (early, late), is_registered=True) == early
    assert without_conflicts(view_of([early, late], {"t": 2}), RANGE).members == (early,)


def test_a_member_gives_way_to_a_client_that_knows_no_rules() -> None:
    ours, foreign = member("a", CEIL_RANGE, 5), member("b", RANGE, 6, is_ours=False)
    assert find_conflict(ours, (ours, foreign), is_registered=True) == foreign
