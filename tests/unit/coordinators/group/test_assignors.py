"""The assignors: `range` in contiguous ranges, `uniform` evenly and with few moves."""

from uuid import UUID

from penstock.coordinators.group.consumer.assignors.problem import Assigned, Subscriber
from penstock.coordinators.group.consumer.assignors.range import (
    assign_ceil_ranges,
    assign_ranges,
    ceil_ranges,
    ranges,
)
from penstock.coordinators.group.consumer.assignors.uniform import assign_uniformly
from penstock.coordinators.group.consumer.partitions import Partitions
from penstock.model.ids import TopicId

ORDERS, BILLS, NOTES = (TopicId(UUID(int=number)) for number in (1, 2, 3))


def subscriber(
    member: str,
    *topics: TopicId,
    instance: str | None = None,
    current: Partitions | None = None,
) -> Subscriber:
    return Subscriber(member, instance, frozenset(topics), current or {})


def sizes(assigned: Assigned) -> dict[str, int]:
    return {member: sum(map(len, own.values())) for member, own in assigned.items()}


def test_the_first_ranges_are_one_larger_if_partitions_do_not_divide_evenly() -> None:
    assert list(ranges(7, 3)) == [range(3), range(3, 5), range(5, 7)]
    assert list(ranges(2, 3)) == [range(1), range(1, 2), range(2, 2)]


def test_ceil_ranges_round_every_share_up_until_none_is_left() -> None:
    assert list(ceil_ranges(7, 3)) == [range(3), range(3, 6), range(6, 7)]
    assert list(ceil_ranges(4, 3)) == [range(2), range(2, 4), range(4, 4)]
    assert list(ceil_ranges(2, 3)) == [range(1), range(1, 2), range(2, 2)]


def test_ceil_range_leaves_the_rest_to_the_last_member() -> None:
    members = [subscriber(name, ORDERS) for name in ("carl", "anna", "bob")]
    assigned = assign_ceil_ranges(members, {ORDERS: 7})
    assert sizes(assigned) == {"anna": 3, "bob": 3, "carl": 1}


def test_range_assigns_a_member_the_same_range_of_every_topic() -> None:
    members = [subscriber(name, ORDERS, BILLS) for name in ("bob", "anna")]
    assigned = assign_ranges(members, {ORDERS: 3, BILLS: 3})
    assert assigned == {
        "anna": {ORDERS: frozenset((0, 1)), BILLS: frozenset((0, 1))},
        "bob": {ORDERS: frozenset((2,)), BILLS: frozenset((2,))},
    }


def test_range_splits_a_topic_among_its_subscribers_only() -> None:
    members = [subscriber("anna", ORDERS), subscriber("bob", ORDERS, BILLS)]
    assigned = assign_ranges(members, {ORDERS: 2, BILLS: 2})
    assert assigned["anna"] == {ORDERS: frozenset((0,))}
    assert assigned["bob"] == {ORDERS: frozenset((1,)), BILLS: frozenset((0, 1))}


def test_range_puts_static_members_first_by_their_instance() -> None:
    members = [
        subscriber("anna", ORDERS),
        subscriber("x", ORDERS, instance="two"),
        subscriber("y", ORDERS, instance="one"),
    ]
    assigned = assign_ranges(members, {ORDERS: 3})
    assert assigned["y"] == {ORDERS: frozenset((0,))}
    assert assigned["x"] == {ORDERS: frozenset((1,))}
    assert assigned["anna"] == {ORDERS: frozenset((2,))}


def test_a_member_without_partitions_gets_an_empty_assignment() -> None:
    members = [subscriber("anna"), subscriber("bob", ORDERS), subscriber("carl", ORDERS)]
    for assign in (assign_ranges, assign_ceil_ranges, assign_uniformly):
        assert set(assign(members, {ORDERS: 1})) == {"anna", "bob", "carl"}
        assert assign(members, {ORDERS: 1})["anna"] == {}
        assert assign([], {}) == {}


def test_uniform_balances_over_all_topics_together() -> None:
    members = [subscriber(name, ORDERS, BILLS) for name in ("anna", "bob")]
    assert sizes(assign_uniformly(members, {ORDERS: 3, BILLS: 3})) == {"anna": 3, "bob": 3}


def test_uniform_moves_only_the_share_of_a_new_member() -> None:
    anna = subscriber("anna", ORDERS, current={ORDERS: frozenset(range(3))})
    bob = subscriber("bob", ORDERS, current={ORDERS: frozenset(range(3, 6))})
    assigned = assign_uniformly([anna, bob, subscriber("carl", ORDERS)], {ORDERS: 6})
    assert sizes(assigned) == {"anna": 2, "bob": 2, "carl": 2}
    assert assigned["anna"][ORDERS] < anna.current[ORDERS]
    assert assigned["bob"][ORDERS] < bob.current[ORDERS]


def test_uniform_lets_the_most_loaded_member_keep_the_extra_partition() -> None:
    anna = subscriber("anna", ORDERS, current={ORDERS: frozenset((0,))})
    bob = subscriber("bob", ORDERS, current={ORDERS: frozenset((1, 2))})
    assigned = assign_uniformly([anna, bob], {ORDERS: 3})
    assert assigned == {"anna": anna.current, "bob": bob.current}


def test_uniform_drops_deleted_topics_and_partitions() -> None:
    anna = subscriber("anna", ORDERS, current={ORDERS: frozenset((0, 9)), BILLS: frozenset((0,))})
    assert assign_uniformly([anna], {ORDERS: 2}) == {"anna": {ORDERS: frozenset((0, 1))}}


def test_uniform_compensates_for_topics_with_fewer_subscribers() -> None:
    members = [subscriber("anna", ORDERS, BILLS), subscriber("bob", ORDERS)]
    assigned = assign_uniformly(members, {ORDERS: 4, BILLS: 2})
    assert sizes(assigned) == {"anna": 3, "bob": 3}
    assert len(assigned["anna"][BILLS]) == 2


def test_uniform_leaves_subscribers_of_a_topic_at_most_one_partition_apart() -> None:
    """Carl can relieve Anna only through Bob, whose load is even with both."""
    members = [
        subscriber("anna", ORDERS, current={ORDERS: frozenset(range(6))}),
        subscriber("bob", ORDERS, BILLS, current={BILLS: frozenset(range(3))}),
        subscriber("carl", BILLS, current={}),
    ]
    assigned = assign_uniformly(members, {ORDERS: 6, BILLS: 3})
    assert sizes(assigned) == {"anna": 4, "bob": 3, "carl": 2}


def test_uniform_is_fast_for_a_large_group() -> None:
    """A thousand members and ten thousand partitions; each member also has its own topic."""
    own = {TopicId(UUID(int=100 + number)): 1 for number in range(1000)}
    counts = {ORDERS: 9000, **own}
    members = [subscriber(f"m{number:04}", ORDERS, topic) for number, topic in enumerate(own)]
    assigned = assign_uniformly(members, counts)
    assert set(sizes(assigned).values()) == {10}
