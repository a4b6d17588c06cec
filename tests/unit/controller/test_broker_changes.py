"""Elections when brokers fail and restart: leaders, ISRs, writes and requests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.states import EPOCH, alive, cluster_state, partition, topic

from penstock.controller.broker_changes import brokers_changed, elect_leaderless, fail_over
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.znodes import decode_state
from penstock.metadata_store.interface import NO_SESSION, SetData, Stat, Value
from penstock.model.cluster import (
    NO_BROKER,
    BrokerId,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import TopicPartition


def never(_: TopicState) -> bool:
    return False


def always(_: TopicState) -> bool:
    return True


def written(decision: ControllerDecision) -> dict[str, PartitionState]:
    """Return the partition states that would be stored, by path."""
    states = {}
    for step in decision.writes:
        for operation in step:
            assert isinstance(operation, SetData)
            stat = Stat(0, 0, 0, 0, 0, operation.version + 1, 0, NO_SESSION, 0, 0)
            value = Value(operation.data, stat)
            states[operation.path] = decode_state(operation.path, value, replicas=())
    return states


def led(decision: ControllerDecision, name: str = "t", number: int = 0) -> PartitionState:
    return decision.state.topics[name].partitions[number]


def summary(state: PartitionState) -> tuple[int, int, tuple[int, ...]]:
    return state.leader, state.leader_epoch, state.in_sync


class TestBrokerFailure:
    def test_elects_the_next_in_sync_replica_of_the_assignment(self) -> None:
        state = cluster_state(alive(0, 1, 2), topic("t", partition(1, (0, 1, 2), (1, 2, 0))))
        decision = brokers_changed(state, alive(0, 2), never)
        assert summary(led(decision)) == (2, 5, (0, 2))

    def test_does_not_elect_a_replica_outside_the_isr(self) -> None:
        state = cluster_state(alive(0, 1, 2), topic("t", partition(1, (0, 1), (1, 2, 0))))
        decision = brokers_changed(state, alive(0, 2), always)
        assert summary(led(decision)) == (0, 5, (0,))

    def test_leaves_no_leader_if_no_other_replica_was_in_sync(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (1,), (1, 0))))
        decision = brokers_changed(state, alive(0), never)
        assert summary(led(decision)) == (NO_BROKER, 5, (1,))

    def test_elects_uncleanly_if_the_topic_allows_it(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (1,), (1, 0))))
        decision = brokers_changed(state, alive(0), always)
        assert summary(led(decision)) == (0, 5, (0,))

    def test_removes_a_failed_follower_from_the_isr(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (0, 1), (1, 0))))
        decision = brokers_changed(state, alive(1), never)
        assert summary(led(decision)) == (1, 5, (1,))

    def test_changes_nothing_if_it_was_in_no_isr(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (1,), (1, 0))))
        decision = brokers_changed(state, alive(1), never)
        assert led(decision) == state.topics["t"].partitions[0]
        assert decision.writes == ()

    def test_of_the_whole_isr_keeps_the_isr(self) -> None:
        state = cluster_state(alive(0, 1, 2), topic("t", partition(1, (0, 1), (1, 0))))
        gone = brokers_changed(state, alive(2), never)
        assert summary(led(gone)) == (NO_BROKER, 5, (0, 1))
        back = brokers_changed(gone.state, alive(2) | alive(0, epoch=8), never)
        assert summary(led(back)) == (0, 6, (0,))


class TestBrokerRestart:
    def test_elects_the_only_in_sync_replica_again(self) -> None:
        state = cluster_state(alive(0), topic("t", partition(-1, (1,), (1, 0))))
        decision = brokers_changed(state, alive(0) | alive(1, epoch=5), never)
        assert summary(led(decision)) == (1, 5, (1,))

    def test_does_not_take_leadership_back(self) -> None:
        state = cluster_state(alive(0), topic("t", partition(0, (0,), (1, 0))))
        decision = brokers_changed(state, alive(0) | alive(1, epoch=5), never)
        assert led(decision) == state.topics["t"].partitions[0]

    def test_that_was_not_seen_still_raises_the_leader_epoch(self) -> None:
        """KAFKA-7235: the same id with another epoch is a restart."""
        state = cluster_state(alive(0), topic("t", partition(0, (0,), (0,))))
        decision = brokers_changed(state, alive(0, epoch=2), never)
        assert summary(led(decision)) == (0, 5, (0,))

    def test_that_was_not_seen_removes_the_broker_from_the_isr(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(0, (0, 1), (0, 1))))
        decision = brokers_changed(state, alive(0, epoch=2) | alive(1), never)
        assert summary(led(decision)) == (1, 5, (1,))

    def test_of_the_whole_isr_leaves_only_the_leader_in_sync(self) -> None:
        """Each may have lost the end of its log, so none can replace another."""
        state = cluster_state(alive(0, 1), topic("t", partition(0, (0, 1), (0, 1))))
        decision = brokers_changed(state, alive(0, 1, epoch=2), never)
        assert summary(led(decision)) == (0, 5, (0,))

    def test_sends_the_broker_the_full_state_and_others_the_brokers(self) -> None:
        parts = [partition(0, (0,), (0,)), partition(0, (0,), (0, 1))]
        state = cluster_state(alive(0), topic("t", *parts))
        decision = brokers_changed(state, alive(0) | alive(1, epoch=5), never)
        [lead, full] = [
            addressed.request for addressed in decision.requests if addressed.broker == 1
        ]
        assert isinstance(lead, LeaderAndIsrRequest)
        assert [
            leader_and_isr_partition.tp.partition for leader_and_isr_partition in lead.partitions
        ] == [1]
        assert lead.broker_epoch == 5
        assert isinstance(full, UpdateMetadataRequest)
        assert full.is_full
        assert full.topics == tuple(decision.state.topics.values())
        [update] = [addressed.request for addressed in decision.requests if addressed.broker == 0]
        assert isinstance(update, UpdateMetadataRequest)
        assert not update.is_full
        assert update.brokers is not None
        assert [broker.id for broker in update.brokers] == [0, 1]


def test_unchanged_brokers_cause_no_decision() -> None:
    state = cluster_state(alive(0, 1), topic("t", partition(0, (0, 1), (0, 1))))
    assert brokers_changed(state, alive(0, 1), never) == ControllerDecision(state=state)


def test_writes_are_conditional_on_the_known_version() -> None:
    parts = [partition(1, (0, 1), (1, 0)), partition(0, (0,), (0,))]
    state = cluster_state(alive(0, 1), topic("t", *parts))
    decision = brokers_changed(state, alive(0), never)
    path = "/brokers/topics/t/partitions/0/state"
    [[write]] = decision.writes
    assert isinstance(write, SetData)
    assert (write.path, write.version) == (path, 7)
    after = led(decision)
    assert after.partition_epoch == 8
    assert after.controller_epoch == EPOCH
    assert written(decision)[path] == after._replace(replicas=())


def test_leader_and_isr_is_sent_before_update_metadata() -> None:
    state = cluster_state(alive(0, 1), topic("t", partition(1, (0, 1), (1, 0))))
    decision = brokers_changed(state, alive(0), never)
    lead, update = [addressed.request for addressed in decision.requests]
    assert isinstance(lead, LeaderAndIsrRequest)
    assert [leader_and_isr_partition.state for leader_and_isr_partition in lead.partitions] == [
        led(decision)
    ]
    assert not lead.partitions[0].is_new
    assert isinstance(update, UpdateMetadataRequest)
    assert [topic.name for topic in update.topics] == ["t"]


class TestControllerFailover:
    def test_writes_nothing_if_all_leaders_are_alive(self) -> None:
        state = cluster_state(alive(0), topic("t", *[partition(0, (0,), (0,))] * 5))
        decision = fail_over(state, never)
        assert decision.writes == ()
        assert decision.state == state

    def test_elects_if_the_leader_is_offline(self) -> None:
        state = cluster_state(alive(0), topic("t", partition(1, (1, 0), (1, 0))))
        assert summary(led(fail_over(state, never))) == (0, 5, (0,))

    def test_sends_every_broker_leader_and_isr_then_full_metadata(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(0, (0, 1), (0, 1))))
        requests = fail_over(state, never).requests
        for broker in (0, 1):
            lead, full = [addressed.request for addressed in requests if addressed.broker == broker]
            assert isinstance(lead, LeaderAndIsrRequest)
            assert isinstance(full, UpdateMetadataRequest)
            assert full.is_full

    def test_splits_requests_with_many_partitions(self) -> None:
        state = cluster_state(alive(0), topic("t", *[partition(0, (0,), (0,))] * 120))
        requests = [addressed.request for addressed in fail_over(state, never).requests]
        pieces = [
            len(addressed.partitions)
            for addressed in requests
            if isinstance(addressed, LeaderAndIsrRequest)
        ]
        assert pieces == [50, 50, 20]

    def test_removes_restarted_brokers_from_the_isr(self) -> None:
        state = cluster_state(alive(0, 1, 2), topic("t", partition(0, (0, 1, 2), (0, 1, 2))))
        restarted = {TopicPartition("t", 0): {BrokerId(0)}}
        assert summary(led(fail_over(state, never, restarted))) == (1, 5, (1, 2))

    def test_elects_a_restarted_broker_if_no_other_stayed(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (0, 1), (0, 1))))
        restarted = {TopicPartition("t", 0): {BrokerId(0), BrokerId(1)}}
        assert summary(led(fail_over(state, never, restarted))) == (1, 5, (1,))


class TestTopicBeingDeleted:
    def marked(self, *waiting: int) -> ClusterState:
        state = cluster_state(alive(0), topic("t", partition(1, (1,), (1, 0))), topic("u"))
        return replace(state, deleting={"t": frozenset(map(BrokerId, waiting))})

    def test_gets_no_leader(self) -> None:
        decision = fail_over(self.marked(0, 1), always)
        assert decision.writes == ()

    def test_is_stopped_on_a_restarted_broker_and_not_in_its_metadata(self) -> None:
        state = self.marked(1)
        decision = brokers_changed(state, alive(0) | alive(1, epoch=5), never)
        stop, full = [addressed.request for addressed in decision.requests if addressed.broker == 1]
        assert isinstance(stop, StopReplicaRequest)
        assert stop.delete
        assert [str(tp) for tp in stop.partitions] == ["t-0"]
        assert isinstance(full, UpdateMetadataRequest)
        assert [topic.name for topic in full.topics] == ["u"]

    def test_leaves_the_metadata_if_only_offline_brokers_have_replicas(self) -> None:
        state = replace(self.marked(0, 1), brokers=alive(0, 1, 2))
        decision = brokers_changed(state, alive(2), never)
        hidden = [
            addressed.request.deleted_topics
            for addressed in decision.requests
            if isinstance(addressed.request, UpdateMetadataRequest)
            and addressed.request.deleted_topics
        ]
        assert hidden == [("t",)]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_leaderless_partition_gets_a_leader_once_unclean_election_is_enabled(
    *, allowed: bool
) -> None:
    state = cluster_state(
        alive(0), topic("t", partition(-1, (1,), (1, 0))), topic("u", partition(-1, (1,), (1, 0)))
    )
    decision = elect_leaderless(state, ["t"], lambda _: allowed)
    assert led(decision).leader == (0 if allowed else NO_BROKER)
    assert led(decision, "u").leader == NO_BROKER
    assert bool(decision.requests) == allowed
