"""Assignors, for any group: one owner per partition, even loads, few reassigned partitions."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.coordinators.group.consumer.assignors import ASSIGNORS
from penstock.coordinators.group.consumer.assignors.problem import Assigned, Subscriber
from penstock.coordinators.group.consumer.partitions import Partitions, count, is_within, without
from penstock.model.ids import TopicId

TOPICS = [TopicId(UUID(int=number)) for number in range(1, 6)]
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})
WANTED = st.frozensets(st.sampled_from(TOPICS), max_size=5)
MANY = settings(max_examples=scaled(test=50, verify=1000, release=20_000), deadline=None)

Counts = dict[TopicId, int]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[list[Subscriber], Counts]:
    """Members with a previous assignment, for the topics that existed then."""
    counts = draw(COUNTS)
    size = draw(st.integers(1, 7))
    same = draw(WANTED)
    wishes = [same if alike else draw(WANTED) for _ in range(size)]
    members = [f"m{index}" for index in range(size)]
    owners = {
        (topic, partition): draw(st.sampled_from([*members, None]))
        for topic in draw(WANTED)
        for partition in range(draw(st.integers(1, 11)))
    }
    had: dict[str, Partitions] = {
        member: {
            topic: frozenset(p for (t, p), who in owners.items() if (t, who) == (topic, member))
            for topic in {t for (t, _), who in owners.items() if who == member}
        }
        for member in members
    }
    subscribers = [
        Subscriber(member, None, wanted, had[member])
        for member, wanted in zip(members, wishes, strict=True)
    ]
    return subscribers, counts


def check_valid(subscribers: list[Subscriber], counts: Counts, assigned: Assigned) -> None:
    assert set(assigned) == {subscriber.member for subscriber in subscribers}
    given_out = [
        (topic, partition)
        for own in assigned.values()
        for topic, partitions in own.items()
        for partition in partitions
    ]
    wanted = frozenset[TopicId]().union(*(subscriber.topics for subscriber in subscribers))
    everything = {(topic, number) for topic in wanted for number in range(counts[topic])}
    assert len(given_out) == len(everything)
    assert set(given_out) == everything
    for subscriber in subscribers:
        assert set(assigned[subscriber.member]) <= subscriber.topics
        assert all(assigned[subscriber.member].values()), "a topic with no partitions stands there"


def again(subscribers: list[Subscriber], assigned: Assigned) -> list[Subscriber]:
    return [subscriber._replace(current=assigned[subscriber.member]) for subscriber in subscribers]


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
@MANY
def test_every_partition_is_assigned_to_one_subscriber(
    name: str, group: tuple[list[Subscriber], Counts]
) -> None:
    check_valid(*group, ASSIGNORS[name](*group))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
@MANY
def test_an_unchanged_group_keeps_its_assignment(
    name: str, group: tuple[list[Subscriber], Counts]
) -> None:
    subscribers, counts = group
    assigned = ASSIGNORS[name](subscribers, counts)
    assert ASSIGNORS[name](again(subscribers, assigned), counts) == assigned


@given(group=groups(alike=True))
@MANY
def test_members_with_equal_subscriptions_differ_by_one_at_most(
    group: tuple[list[Subscriber], Counts],
) -> None:
    loads = [count(own) for own in ASSIGNORS["uniform"](*group).values()]
    assert max(loads) - min(loads) <= 1


@given(group=groups())
@MANY
def test_range_assigns_contiguous_ranges_of_almost_equal_size(
    group: tuple[list[Subscriber], Counts],
) -> None:
    subscribers, counts = group
    assigned = ASSIGNORS["range"](subscribers, counts)
    for topic in counts:
        runs = [
            sorted(assigned[subscriber.member].get(topic, ()))
            for subscriber in subscribers
            if topic in subscriber.topics
        ]
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


@given(group=groups())
@MANY
def test_no_single_move_makes_it_more_even(group: tuple[list[Subscriber], Counts]) -> None:
    subscribers, counts = group
    assigned = ASSIGNORS["uniform"](subscribers, counts)
    loads = {member: count(own) for member, own in assigned.items()}
    for giver in subscribers:
        for taker in subscribers:
            shared = assigned[giver.member].keys() & taker.topics
            assert not shared or loads[giver.member] - loads[taker.member] <= 1


@given(group=groups(alike=True), gone=st.integers(0, 6))
@MANY
def test_remaining_members_keep_their_partitions_when_one_leaves(
    group: tuple[list[Subscriber], Counts], gone: int
) -> None:
    subscribers, counts = group
    settled = again(subscribers, ASSIGNORS["uniform"](subscribers, counts))
    rest = [member for index, member in enumerate(settled) if index != gone % len(settled)]
    assigned = ASSIGNORS["uniform"](rest, counts)
    for subscriber in rest:
        assert is_within(subscriber.current, assigned[subscriber.member])


@given(group=groups(alike=True))
@MANY
def test_only_the_share_of_a_new_member_moves(group: tuple[list[Subscriber], Counts]) -> None:
    subscribers, counts = group
    settled = again(subscribers, ASSIGNORS["uniform"](subscribers, counts))
    newcomer = Subscriber("newcomer", None, settled[0].topics, {})
    assigned = ASSIGNORS["uniform"]([*settled, newcomer], counts)
    lost = sum(
        count(without(subscriber.current, assigned[subscriber.member])) for subscriber in settled
    )
    assert lost == count(assigned["newcomer"])
