"""Failed replicas on live brokers: other replicas lead, and failed ones are not elected."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.states import alive, cluster_state, partition, topic

from penstock.controller.broker_changes import brokers_changed, elect_leaderless
from penstock.controller.interface import ApiError
from penstock.controller.leader_changes import elect_leaders
from penstock.controller.offline_replicas import fail_replicas
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.topic_deletion import remove_topics
from penstock.model.admin import ElectionType
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    FailedReplicas,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = BrokerEpoch(1)


def never(_: TopicState) -> bool:
    return False


def summary(state: ClusterState, number: int = 0) -> tuple[int, int, tuple[int, ...]]:
    partition = state.topics["t"].partitions[number]
    return partition.leader, partition.leader_epoch, partition.in_sync


def one(part: PartitionState, *live: int) -> ClusterState:
    return cluster_state(alive(*live), topic("t", part))


def notified_failed(decision: ControllerDecision) -> dict[int, FailedReplicas]:
    """Return the failed replicas that each notified broker knows in the end."""
    return {
        broker: addressed.failed
        for broker, addressed in decision.requests
        if isinstance(addressed, UpdateMetadataRequest) and addressed.failed is not None
    }


def fail(state: ClusterState, broker: int, *names: TopicPartition) -> ControllerDecision:
    return fail_replicas(state, BrokerId(broker), EPOCH, names or (T0,), never)


def test_a_failed_leader_is_replaced_and_leaves_the_isr() -> None:
    decision = fail(one(partition(0, (0, 1, 2), (0, 1, 2)), 0, 1, 2), 0)
    assert summary(decision.state) == (1, 5, (1, 2))
    assert len(decision.writes) == 1
    assert {addressed.broker for addressed in decision.requests} == {0, 1, 2}
    assert notified_failed(decision) == {number: {T0: {0}} for number in (0, 1, 2)}


def test_a_failed_follower_leaves_the_isr_and_the_leader_stays() -> None:
    decision = fail(one(partition(0, (0, 1), (0, 1)), 0, 1), 1)
    assert summary(decision.state) == (0, 5, (0,))


def test_only_reported_partitions_change() -> None:
    parts = (partition(0, (0, 1), (0, 1)), partition(0, (0, 1), (0, 1)))
    decision = fail(cluster_state(alive(0, 1), topic("t", *parts)), 0, T1)
    assert summary(decision.state, 0) == (0, 4, (0, 1))
    assert summary(decision.state, 1) == (1, 5, (1,))


def test_reporting_twice_changes_nothing_more() -> None:
    once = fail(one(partition(0, (0, 1), (0, 1)), 0, 1), 0).state
    again = fail(once, 0)
    assert again.state == once
    assert (again.writes, again.requests) == ((), ())


def test_a_failed_last_in_sync_replica_stays_in_the_isr_and_is_not_elected() -> None:
    state = fail(one(partition(0, (0,), (0, 1)), 0, 1), 0).state
    assert summary(state) == (NO_BROKER, 5, (0,))
    for later in (
        brokers_changed(state, alive(0, 1, 2), never),
        elect_leaderless(state, ["t"], never),
    ):
        assert summary(later.state)[0] == NO_BROKER


def test_unclean_election_skips_failed_replicas() -> None:
    state = fail(one(partition(0, (0,), (0, 1)), 0, 1), 0).state
    decision, results = elect_leaders(state, ElectionType.UNCLEAN, [T0])
    assert results == {T0: None}
    assert summary(decision.state) == (1, 6, (1,))
    alone = fail(one(partition(0, (0,), (0,)), 0, 1), 0).state
    _, results = elect_leaders(alone, ElectionType.UNCLEAN, [T0])
    refused = results[T0]
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_a_restarted_broker_is_eligible_again() -> None:
    state = fail(one(partition(0, (0,), (0, 1)), 0, 1), 0).state
    back = {**alive(1), **alive(0, epoch=2)}
    decision = brokers_changed(state, back, never)
    assert decision.state.failed == {}
    assert notified_failed(decision) == {0: {}, 1: {}}
    assert summary(decision.state) == (0, 6, (0,))


def test_failed_replicas_are_sent_to_new_brokers_only() -> None:
    state = fail(one(partition(0, (0, 1), (0, 1)), 0, 1), 0).state
    assert notified_failed(brokers_changed(state, alive(0, 1, 2), never)) == {2: {T0: {0}}}


def test_a_recreated_topic_has_no_failed_replicas() -> None:
    state = fail(one(partition(0, (0, 1), (0, 1)), 0, 1), 0).state
    decision = remove_topics(state, {"t": ("/brokers/topics/t",)})
    assert decision.state.failed == {}
    assert notified_failed(decision) == {0: {}, 1: {}}


def test_partitions_that_the_broker_does_not_hold_are_ignored() -> None:
    state = one(partition(0, (0, 1), (0, 1)), 0, 1, 2)
    deleting = replace(state, deleting={"t": frozenset((BrokerId(0),))})
    unknown = TopicPartition("gone", 0), TopicPartition("t", 7)
    for decision in (fail(state, 2), fail(state, 0, *unknown), fail(deleting, 0)):
        assert (decision.writes, decision.requests) == ((), ())
        assert decision.state.failed == {}


@pytest.mark.parametrize(("broker", "epoch"), [(0, 2), (7, 1)])
def test_a_report_with_a_stale_broker_epoch_is_refused(broker: int, epoch: int) -> None:
    state = one(partition(0, (0, 1), (0, 1)), 0, 1)
    with pytest.raises(Refusal) as refusal:
        fail_replicas(state, BrokerId(broker), BrokerEpoch(epoch), (T0,), never)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
