"""Replica assignment over random clusters: distinct brokers, even leaders, most racks."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.controller.cluster import node

from penstock.controller.replica_assignment import assign_replicas
from penstock.model.cluster import BrokerId, BrokerNode

EXAMPLES = scaled(test=80, verify=2000, release=20_000)


class Case(NamedTuple):
    brokers: list[BrokerNode]
    partitions: int
    factor: int
    start: int
    shift: int

    def assign(self, first: int = 0, count: int | None = None) -> list[tuple[BrokerId, ...]]:
        return assign_replicas(
            self.brokers,
            partitions=self.partitions if count is None else count,
            replication_factor=self.factor,
            start=self.start,
            shift=self.shift,
            first_partition=first,
        )


@st.composite
def cases(draw: st.DrawFn, racks: tuple[str | None, ...] = (None, "r1", "r2", "r3")) -> Case:
    ids = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=12, unique=True))
    brokers = [node(id_, rack=draw(st.sampled_from(racks))) for id_ in ids]
    places = st.integers(0, 2 * len(ids))
    return Case(
        brokers,
        draw(st.integers(1, 60)),
        draw(st.integers(1, len(ids))),
        draw(places),
        draw(places),
    )


@given(case=cases())
@settings(max_examples=EXAMPLES, deadline=None)
def test_each_partition_has_distinct_brokers_of_the_cluster(case: Case) -> None:
    assignment = case.assign()
    assert len(assignment) == case.partitions
    for replicas in assignment:
        assert len(replicas) == len(set(replicas)) == case.factor
        assert set(replicas) <= {broker.id for broker in case.brokers}


@given(case=cases())
@settings(max_examples=EXAMPLES, deadline=None)
def test_leader_counts_differ_by_at_most_one(case: Case) -> None:
    leads = Counter(replicas[0] for replicas in case.assign())
    counts = [leads[broker.id] for broker in case.brokers]
    assert max(counts) - min(counts) <= 1


@given(case=cases())
@settings(max_examples=EXAMPLES, deadline=None)
def test_each_partition_is_on_as_many_racks_as_there_can_be(case: Case) -> None:
    rack_of = {broker.id: broker.rack for broker in case.brokers}
    possible = min(case.factor, len(set(rack_of.values())))
    for replicas in case.assign():
        assert len({rack_of[broker] for broker in replicas}) == possible


@given(case=cases(racks=(None,)))
@settings(max_examples=EXAMPLES, deadline=None)
def test_without_racks_replicas_are_spread_as_evenly_as_their_columns(case: Case) -> None:
    held = Counter(broker for replicas in case.assign() for broker in replicas)
    counts = [held[broker.id] for broker in case.brokers]
    assert max(counts) - min(counts) <= case.factor


@given(
    racks=st.integers(1, 4),
    per_rack=st.integers(1, 4),
    rounds=st.integers(1, 3),
    start=st.integers(0, 20),
    shift=st.integers(0, 20),
    data=st.data(),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_equal_racks_and_whole_rounds_give_every_broker_the_same(
    *, racks: int, per_rack: int, rounds: int, start: int, shift: int, data: st.DataObject
) -> None:
    brokers = [node(number, rack=f"r{number % racks}") for number in range(racks * per_rack)]
    factor = data.draw(st.integers(1, len(brokers)))
    case = Case(brokers, rounds * len(brokers), factor, start, shift)
    held = Counter(broker for replicas in case.assign() for broker in replicas)
    assert {held[broker.id] for broker in brokers} == {rounds * factor}


@given(case=cases(), data=st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_partitions_added_later_equal_those_created_at_once(
    case: Case, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, case.partitions))
    together = case.assign()
    assert case.assign(0, first) + case.assign(first, case.partitions - first) == together


@given(case=cases(racks=(None,)))
@settings(max_examples=EXAMPLES, deadline=None)
def test_followers_of_a_leader_differ_from_one_round_to_the_next(case: Case) -> None:
    """So that the load of a failed broker spreads over all the others."""
    count = len(case.brokers)
    if count < 3 or case.factor < 2:
        return
    assignment = case.assign(0, 2 * count)
    first, second = assignment[0], assignment[count]
    assert first[0] == second[0]
    assert first[1] != second[1]
