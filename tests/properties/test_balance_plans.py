"""Whatever the cluster looks like, a balance plan keeps every partition's replicas, reaches its
goals in as few bytes as can be told simply, and leaves nothing for a second plan."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.controller.balancing.layout import (
    BalanceGoals,
    BalancePlan,
    CannotBalance,
    ClusterLayout,
    LayoutPartition,
    with_reassignments,
)
from penstock.controller.balancing.planner import plan_balance
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition

EXAMPLES = scaled(test=60, verify=600, release=6000)
MB = 1 << 20
GOALS = BalanceGoals()


@st.composite
def layouts(
    draw: st.DrawFn,
    *,
    racks: int = 3,
    sizes: st.SearchStrategy[int] | None = None,
    dead: int = 1,
    with_fixed: bool = True,
    most_replicas: int = 4,
) -> ClusterLayout:
    """Some live brokers, and replicas on them and on brokers that are gone."""
    count = draw(st.integers(1, 6))
    live = [BrokerId(broker) for broker in range(1, count + 1)]
    gone = [BrokerId(90 + number) for number in range(draw(st.integers(0, dead)))]
    rack_names = [None, *(f"r{number}" for number in range(racks))]
    rack = st.sampled_from(rack_names) if racks else st.none()
    holders = live[: draw(st.integers(1, count))] + gone  # the others have joined just now
    factor = draw(st.integers(1, min(most_replicas, len(holders), count)))
    partitions = [
        LayoutPartition(
            TopicPartition(draw(st.sampled_from(["a", "b", "c"])), number),
            tuple(draw(st.permutations(holders))[:factor]),
            draw(sizes if sizes is not None else st.integers(0, 200 * MB)),
            with_fixed and draw(st.integers(0, 9)) == 0,
        )
        for number in range(draw(st.integers(0, 25)))
    ]
    return ClusterLayout(
        racks={broker: draw(rack) for broker in live}, partitions=tuple(partitions)
    )


@st.composite
def goals_of(draw: st.DrawFn, layout: ClusterLayout) -> BalanceGoals:
    kinds = {broker: draw(st.sampled_from("bbbrxa")) for broker in sorted(_everyone(layout))}
    live = layout.racks.keys()
    return BalanceGoals(
        removed=frozenset(broker for broker in kinds if kinds[broker] == "r"),
        excluded=frozenset(broker for broker in kinds if kinds[broker] == "x" and broker in live),
        added=frozenset(broker for broker in kinds if kinds[broker] == "a" and broker in live),
        only_removed=draw(st.integers(0, 4)) == 0,
    )


def _everyone(layout: ClusterLayout) -> set[BrokerId]:
    holders = {broker for partition in layout.partitions for broker in partition.replicas}
    return holders | layout.racks.keys()


def _plan(layout: ClusterLayout, goals: BalanceGoals) -> BalancePlan | None:
    """None if the goals leave too few brokers for some partition."""
    try:
        return plan_balance(layout, goals)
    except CannotBalance:
        usable = len(layout.racks.keys() - goals.removed - goals.excluded)
        factor = max((len(partition.replicas) for partition in layout.partitions), default=0)
        assert usable < factor + len(goals.excluded) + len(_everyone(layout) - layout.racks.keys())
        return None


def _covered(layout: ClusterLayout, replicas: tuple[BrokerId, ...]) -> int:
    return len({layout.racks[broker] or "" for broker in replicas if broker in layout.racks})


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_plan_keeps_the_factor_and_respects_who_gives_and_gets(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    goals = data.draw(goals_of(layout))
    plan = _plan(layout, goals)
    if plan is None:
        return
    fixed = {partition.tp for partition in layout.partitions if partition.is_fixed}
    for planned in plan.reassignments:
        assert planned.tp not in fixed
        assert planned.after != planned.before
        assert len(set(planned.after)) == len(planned.after) == len(planned.before)
        has_removed = bool(goals.removed & set(planned.before))
        for broker in planned.adding:
            assert broker in layout.racks.keys() - goals.removed - goals.excluded
            assert not goals.added or broker in goals.added or has_removed
        for broker in planned.removing:
            assert broker in goals.removed or (
                broker in layout.racks and broker not in goals.excluded and not goals.only_removed
            )
        if not goals.removed & set(planned.before):
            assert _covered(layout, planned.after) >= _covered(layout, planned.before)
    for partition in with_reassignments(layout, plan.reassignments).partitions:
        assert partition.is_fixed or not goals.removed & set(partition.replicas)


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_second_plan_finds_nothing_to_do(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    goals = data.draw(goals_of(layout))
    plan = _plan(layout, goals)
    if plan is None:
        return
    after = with_reassignments(layout, plan.reassignments)
    holders = {broker for partition in after.partitions for broker in partition.replicas}
    gone = goals.removed - holders - layout.racks.keys()  # nothing is left to remove
    later = BalanceGoals(
        removed=goals.removed - gone,
        excluded=goals.excluded,
        added=goals.added,
        only_removed=goals.only_removed,
    )
    assert plan_balance(after, later).reassignments == ()


@settings(max_examples=EXAMPLES)
@given(layouts(), st.randoms(use_true_random=False))
def test_the_order_of_partitions_and_brokers_does_not_matter(
    layout: ClusterLayout, random: Random
) -> None:
    partitions, racks = list(layout.partitions), list(layout.racks.items())
    random.shuffle(partitions)
    random.shuffle(racks)
    shuffled = ClusterLayout(racks=dict(racks), partitions=tuple(partitions))
    assert plan_balance(shuffled).reassignments == plan_balance(layout).reassignments


@settings(max_examples=EXAMPLES)
@given(layouts(dead=0, with_fixed=False))
def test_every_partition_covers_as_many_racks_as_there_are(layout: ClusterLayout) -> None:
    available = len({rack or "" for rack in layout.racks.values()})
    for partition in with_reassignments(layout, plan_balance(layout).reassignments).partitions:
        wanted = min(available, len(partition.replicas))
        assert _covered(layout, partition.replicas) == wanted


@settings(max_examples=EXAMPLES)
@given(layouts(racks=0, dead=0, with_fixed=False))
def test_without_racks_replicas_differ_by_one_at_most(layout: ClusterLayout) -> None:
    counts = [load.replicas for load in plan_balance(layout).after.values()]
    assert max(counts) - min(counts) <= 1


@settings(max_examples=EXAMPLES)
@given(layouts(racks=0, dead=0, with_fixed=False))
def test_leaders_differ_by_one_at_most_where_every_broker_has_every_partition(
    layout: ClusterLayout,
) -> None:
    everywhere = ClusterLayout(
        racks=layout.racks,
        partitions=tuple(
            partition._replace(
                replicas=(
                    *partition.replicas,
                    *sorted(layout.racks.keys() - set(partition.replicas)),
                )
            )
            for partition in layout.partitions
        ),
    )
    plan = plan_balance(everywhere)
    leaders = [load.leaders for load in plan.after.values()]
    assert max(leaders) - min(leaders) <= 1
    assert plan.copied_bytes == 0
    surplus = sum(max(0, load.leaders - max(leaders)) for load in plan.before.values())
    assert surplus <= len(plan.reassignments)


def least_bytes(layout: ClusterLayout, plan: BalancePlan, goals: BalanceGoals) -> int:
    """A bound from below: each broker receives as many replicas and bytes as it lacks at the end,
    and everything on removed brokers is copied."""
    drained = sum(
        partition.size_bytes
        for partition in layout.partitions
        for broker in partition.replicas
        if broker in goals.removed
    )
    sizes = sorted(partition.size_bytes for partition in layout.partitions)
    lacking = 0
    for broker, after in plan.after.items():
        replicas = after.replicas - plan.before[broker].replicas
        lacking += max(
            0, after.size_bytes - plan.before[broker].size_bytes, sum(sizes[: max(0, replicas)])
        )
    return max(drained, lacking)


@settings(max_examples=EXAMPLES)
@given(layouts(racks=0, dead=0, with_fixed=False, sizes=st.just(7 * MB), most_replicas=1))
def test_equal_replicas_are_copied_only_where_one_is_lacking(layout: ClusterLayout) -> None:
    plan = plan_balance(layout)
    assert plan.copied_bytes == least_bytes(layout, plan, GOALS)


@settings(max_examples=EXAMPLES)
@given(layouts(racks=0, dead=0, with_fixed=False, sizes=st.just(7 * MB), most_replicas=1))
def test_removing_a_broker_of_a_balanced_cluster_copies_its_replicas_alone(
    layout: ClusterLayout,
) -> None:
    balanced = with_reassignments(layout, plan_balance(layout).reassignments)
    goals = BalanceGoals(removed=frozenset([max(layout.racks)]))
    plan = _plan(balanced, goals)
    if plan is not None:
        assert plan.copied_bytes == least_bytes(balanced, plan, goals)


@settings(max_examples=EXAMPLES)
@given(layouts(racks=0, dead=0, with_fixed=False))
def test_no_plan_copies_everything_and_none_less_than_it_must(layout: ClusterLayout) -> None:
    plan = plan_balance(layout)
    everything = sum(p.size_bytes * len(p.replicas) for p in layout.partitions)
    assert least_bytes(layout, plan, GOALS) <= plan.copied_bytes <= everything


def test_a_broker_that_is_needed_cannot_be_removed() -> None:
    one, two = BrokerId(1), BrokerId(2)
    layout = ClusterLayout(
        racks={one: None, two: None},
        partitions=(LayoutPartition(TopicPartition("orders", 0), (one, two), 10),),
    )
    with pytest.raises(CannotBalance, match="orders-0 has 2 replicas, and without broker 2"):
        plan_balance(layout, BalanceGoals(removed=frozenset([two])))


def test_a_second_plan_covers_no_rack_that_the_first_one_freed() -> None:
    """Broker 4 takes over what broker 1 had, so that only now broker 3 brings another rack."""
    one, two, three, four, five = map(BrokerId, range(1, 6))
    layout = ClusterLayout(
        racks={one: None, two: "r1", three: None, four: "r0", five: "r1"},
        partitions=(
            LayoutPartition(TopicPartition("a", 0), (one, two, five), 0),
            LayoutPartition(TopicPartition("a", 1), (one, two, three), 0, is_fixed=True),
        ),
    )
    goals = BalanceGoals(removed=frozenset([one]), added=frozenset([three]))
    plan = plan_balance(layout, goals)
    assert set(plan.reassignments[0].after) == {three, four, five}
    assert plan_balance(with_reassignments(layout, plan.reassignments), goals).reassignments == ()
