"""Reassignments: started, retargeted, cancelled, finished and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.states import alive, cluster_state, partition, topic

from penstock.controller.interface import ApiError, Reassignment
from penstock.controller.reassignment import (
    alter_reassignments,
    find_reassignments,
    finish_reassignments,
)
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.znodes import decode_topic
from penstock.metadata_store.interface import SetData
from penstock.model.cluster import BrokerId, LeaderAndIsrRequest, PartitionState, StopReplicaRequest
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

T0 = TopicPartition("t", 0)


def reassignment_to(*replicas: int, name: TopicPartition = T0) -> Reassignment:
    return Reassignment(name, tuple(map(BrokerId, replicas)))


def cluster(part: PartitionState, *live: int) -> ClusterState:
    return cluster_state(alive(*live), topic("t", part, partition(0, (0,), (0,))))


def reassigned(state: ClusterState, *reassignments: Reassignment) -> ControllerDecision:
    decision, results = alter_reassignments(state, reassignments)
    assert results == [None] * len(reassignments)
    return decision


def part(decision: ControllerDecision) -> PartitionState:
    return decision.state.topics["t"].partitions[0]


def assignment_of(state: PartitionState) -> tuple[tuple[int, ...], ...]:
    return state.replicas, state.adding, state.removing


def stopped(decision: ControllerDecision) -> list[int]:
    return [
        addressed.broker
        for addressed in decision.requests
        if isinstance(addressed.request, StopReplicaRequest)
    ]


def roled(decision: ControllerDecision) -> list[int]:
    return [
        addressed.broker
        for addressed in decision.requests
        if isinstance(addressed.request, LeaderAndIsrRequest)
    ]


START = cluster(partition(0, (0, 1), (0, 1)), 0, 1, 2, 3)


class TestStartedReassignment:
    def test_has_both_sets_of_replicas_target_first(self) -> None:
        decision = reassigned(START, reassignment_to(2, 1))
        assert assignment_of(part(decision)) == ((2, 1, 0), (2,), (0,))
        assert part(decision).in_sync == (0, 1)

    def test_keeps_leader_and_leader_epoch(self) -> None:
        after = part(reassigned(START, reassignment_to(2, 3)))
        assert (after.leader, after.leader_epoch, after.partition_epoch) == (0, 4, 8)

    def test_sends_leader_and_isr_to_all_replicas_and_stops_none(self) -> None:
        decision = reassigned(START, reassignment_to(2, 3))
        assert sorted(roled(decision)) == [0, 1, 2, 3]
        assert stopped(decision) == []

    def test_writes_partition_states_before_the_topic_znode(self) -> None:
        decision = reassigned(START, reassignment_to(2, 1))
        writes = [create for step in decision.writes for create in step]
        assert [write.path for write in writes] == [
            "/brokers/topics/t/partitions/0/state",
            "/brokers/topics/t",
        ]
        assert isinstance(writes[1], SetData)
        node = decode_topic("t", writes[1].data)
        assert (node.replicas[0], node.adding, node.removing) == ((2, 1, 0), {0: (2,)}, {0: (0,)})


class TestFinishedReassignment:
    def arrived(self, *in_sync: int) -> ClusterState:
        state = reassigned(START, reassignment_to(2, 1)).state
        there = state.topics["t"].partitions[0]._replace(in_sync=tuple(map(BrokerId, in_sync)))
        return cluster(there, 0, 1, 2, 3)

    def test_needs_every_target_replica_in_sync(self) -> None:
        decision = finish_reassignments(self.arrived(0, 1), topics=["t"])
        assert decision == ControllerDecision(state=self.arrived(0, 1))

    def test_elects_the_first_target_replica_if_the_leader_is_removed(self) -> None:
        decision = finish_reassignments(self.arrived(0, 1, 2), topics=["t"])
        after = part(decision)
        assert assignment_of(after) == ((2, 1), (), ())
        assert (after.leader, after.leader_epoch, after.in_sync) == (2, 5, (1, 2))
        assert (stopped(decision), roled(decision)) == ([0], [1, 2])

    def test_keeps_a_leader_that_stays(self) -> None:
        state = self.arrived(0, 1, 2)
        led = state.topics["t"].partitions[0]._replace(leader=BrokerId(1))
        after = part(finish_reassignments(cluster(led, 0, 1, 2, 3), topics=["t"]))
        assert (after.leader, after.leader_epoch) == (1, 5)  # raised: fences the removed replica

    def test_that_only_adds_replicas_keeps_the_leader_epoch(self) -> None:
        state = reassigned(START, reassignment_to(0, 1, 2)).state
        there = (
            state.topics["t"]
            .partitions[0]
            ._replace(in_sync=(BrokerId(0), BrokerId(1), BrokerId(2)))
        )
        after = part(finish_reassignments(cluster(there, 0, 1, 2, 3), topics=["t"]))
        assert assignment_of(after) == ((0, 1, 2), (), ())
        assert (after.leader_epoch, after.partition_epoch) == (4, 9)

    def test_is_immediate_if_all_targets_are_in_sync(self) -> None:
        decision = reassigned(START, reassignment_to(1))
        after = part(decision)
        assert assignment_of(after) == ((1,), (), ())
        assert (after.leader, after.leader_epoch, after.in_sync) == (1, 5, (1,))
        assert stopped(decision) == [0]
        versions = [
            data.version
            for step in decision.writes
            for data in step
            if isinstance(data, SetData) and data.path.endswith("state")
        ]
        assert versions == [7, 8]

    def test_that_only_reorders_replicas_changes_the_preferred_leader(self) -> None:
        decision = reassigned(START, reassignment_to(1, 0))
        after = part(decision)
        assert assignment_of(after) == ((1, 0), (), ())
        assert (after.leader, after.leader_epoch) == (0, 4)

    def test_sends_nothing_to_offline_brokers(self) -> None:
        state = self.arrived(1, 2)
        led = state.topics["t"].partitions[0]._replace(leader=BrokerId(1))
        decision = finish_reassignments(cluster(led, 1, 2), topics=["t"])
        assert (stopped(decision), roled(decision)) == ([], [1, 2])


class TestRetargetedOrCancelledReassignment:
    def test_replaces_the_target(self) -> None:
        first = reassigned(START, reassignment_to(2, 1)).state
        decision = reassigned(first, reassignment_to(3, 1))
        assert assignment_of(part(decision)) == ((3, 1, 0), (3,), (0,))
        assert stopped(decision) == [2]
        assert part(decision).leader_epoch == 5  # broker 2 is fenced

    def test_returns_to_the_original_replicas(self) -> None:
        first = reassigned(START, reassignment_to(2, 1)).state
        decision = reassigned(first, Reassignment(T0, None))
        assert set(part(decision).replicas) == {0, 1}
        assert assignment_of(part(decision))[1:] == ((), ())
        assert stopped(decision) == [2]
        assert find_reassignments(decision.state) == {}

    def test_elects_another_leader_if_the_leader_is_removed(self) -> None:
        first = reassigned(START, reassignment_to(2, 1)).state
        led = (
            first.topics["t"]
            .partitions[0]
            ._replace(leader=BrokerId(2), in_sync=(BrokerId(2), BrokerId(1)))
        )
        after = part(reassigned(cluster(led, 1, 2), Reassignment(T0, None)))
        assert (after.leader, after.in_sync) == (1, (1,))

    def test_is_refused_if_no_remaining_replica_is_in_sync(self) -> None:
        first = reassigned(START, reassignment_to(2, 3)).state
        led = first.topics["t"].partitions[0]._replace(leader=BrokerId(2), in_sync=(BrokerId(2),))
        state = cluster(led, 0, 1, 2, 3)
        decision, [refused] = alter_reassignments(state, [Reassignment(T0, None)])
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert decision == ControllerDecision(state=state)


@pytest.mark.parametrize(
    ("reassignment", "code"),
    [
        (reassignment_to(), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (reassignment_to(1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (reassignment_to(0, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (reassignment_to(0, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Reassignment(T0, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (reassignment_to(0, name=TopicPartition("t", 2)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (reassignment_to(0, name=TopicPartition("u", 0)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_invalid_reassignment_is_refused_and_others_start(
    reassignment: Reassignment, code: ErrorCode
) -> None:
    other = TopicPartition("t", 1)
    decision, results = alter_reassignments(START, [reassignment, reassignment_to(2, name=other)])
    assert isinstance(results[0], ApiError)
    assert (results[0].code, results[1]) == (code, None)
    assert list(find_reassignments(decision.state)) == [other]


def test_replication_factor_changes_can_be_disallowed() -> None:
    _, results = alter_reassignments(
        START, [reassignment_to(1), reassignment_to(2, 3)], allow_replication_factor_change=False
    )
    assert isinstance(results[0], ApiError)
    assert (results[0].code, results[1]) == (ErrorCode.INVALID_REPLICATION_FACTOR, None)


def test_an_offline_replica_may_stay_but_not_be_added() -> None:
    state = cluster(partition(0, (0,), (0, 9)), 0, 1)
    assert assignment_of(part(reassigned(state, reassignment_to(1, 9)))) == ((1, 9, 0), (1,), (0,))


def test_a_reassignment_to_the_current_replicas_writes_nothing() -> None:
    assert reassigned(START, reassignment_to(0, 1)) == ControllerDecision(state=START)


def test_topics_being_deleted_cannot_be_reassigned() -> None:
    state = replace(
        reassigned(START, reassignment_to(2, 1)).state, deleting={"t": frozenset((BrokerId(0),))}
    )
    assert find_reassignments(state) == {}
    assert finish_reassignments(state, topics=["t"]) == ControllerDecision(state=state)
    _, [refused] = alter_reassignments(state, [reassignment_to(0)])
    assert isinstance(refused, ApiError)


def test_more_than_ten_replicas_are_refused() -> None:
    state = cluster(partition(0, (0,), (0,)), *range(11))
    decision, results = alter_reassignments(state, [reassignment_to(*range(11))])
    assert results[0] is not None
    assert results[0].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "11 replicas; at most 10" in str(results[0].message)
    assert decision.state == state
