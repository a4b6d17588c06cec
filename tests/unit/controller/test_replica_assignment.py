"""Replica assignment by example; tests/properties has it over random clusters."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster import node

from penstock.controller.replica_assignment import assign_replicas


def test_leaders_are_round_robin_and_follower_distance_grows() -> None:
    assignment = assign_replicas(
        [node(number) for number in (0, 1, 2)], partitions=6, replication_factor=2, start=0, shift=0
    )
    assert assignment == [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1)]


def test_start_rotates_the_assignment() -> None:
    brokers = [node(number) for number in (5, 7, 9)]
    assignment = assign_replicas(brokers, partitions=2, replication_factor=1, start=2, shift=0)
    assert assignment == [(9,), (5,)]


def test_a_partition_s_replicas_are_on_different_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    brokers = [node(broker, rack=rack) for broker, rack in racks.items()]
    assignment = assign_replicas(brokers, partitions=8, replication_factor=2, start=0, shift=0)
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in assignment)


def test_brokers_without_a_rack_share_one() -> None:
    brokers = [node(0), node(1), node(2, rack="a")]
    assignment = assign_replicas(brokers, partitions=6, replication_factor=2, start=0, shift=0)
    assert all(2 in replicas for replicas in assignment)


@pytest.mark.parametrize("factor", [0, 2])
def test_more_replicas_than_brokers_asserts(factor: int) -> None:
    with pytest.raises(AssertionError):
        assign_replicas([node(0)], partitions=1, replication_factor=factor, start=0, shift=0)
