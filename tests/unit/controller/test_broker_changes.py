"""Elections when brokers come and go: who leads, who is in sync, what is written, who is told."""

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
    """What the tree would hold, by path."""
    found = {}
    for step in decision.writes:
        for operation in step:
            assert isinstance(operation, SetData)
            stat = Stat(0, 0, 0, 0, 0, operation.version + 1, 0, NO_SESSION, 0, 0)
            value = Value(operation.data, stat)
            found[operation.path] = decode_state(operation.path, value, replicas=())
    return found


def led(decision: ControllerDecision, name: str = "t", number: int = 0) -> PartitionState:
    return decision.state.topics[name].partitions[number]


def summary(state: PartitionState) -> tuple[int, int, tuple[int, ...]]:
    return state.leader, state.leader_epoch, state.in_sync


class TestABrokerThatDies:
    def test_is_followed_by_the_next_in_sync_replica_of_the_assignment(self) -> None:
        state = cluster_state(alive(0, 1, 2), topic("t", partition(1, (0, 1, 2), (1, 2, 0))))
        decision = brokers_changed(state, alive(0, 2), never)
        assert summary(led(decision)) == (2, 5, (0, 2))

    def test_is_not_followed_by_a_replica_that_was_behind(self) -> None:
        state = cluster_state(alive(0, 1, 2), topic("t", partition(1, (0, 1), (1, 2, 0))))
        decision = brokers_changed(state, alive(0, 2), always)
        assert summary(led(decision)) == (0, 5, (0,))

    def test_leaves_no_leader_when_nobody_else_was_in_sync(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (1,), (1, 0))))
        decision = brokers_changed(state, alive(0), never)
        assert summary(led(decision)) == (NO_BROKER, 5, (1,))

    def test_leaves_a_leader_that_lacks_records_where_the_topic_allows_it(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (1,), (1, 0))))
        decision = brokers_changed(state, alive(0), always)
        assert summary(led(decision)) == (0, 5, (0,))

    def test_is_no_longer_in_sync_where_it_followed(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (0, 1), (1, 0))))
        decision = brokers_changed(state, alive(1), never)
        assert summary(led(decision)) == (1, 5, (1,))

    def test_changes_nothing_where_it_had_no_replica_in_sync(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (1,), (1, 0))))
        decision = brokers_changed(state, alive(1), never)
        assert led(decision) == state.topics["t"].partitions[0]
        assert decision.writes == ()

    def test_together_with_all_in_sync_replicas_leaves_all_of_them_a_chance(self) -> None:
        state = cluster_state(alive(0, 1, 2), topic("t", partition(1, (0, 1), (1, 0))))
        gone = brokers_changed(state, alive(2), never)
        assert summary(led(gone)) == (NO_BROKER, 5, (0, 1))
        back = brokers_changed(gone.state, alive(2) | alive(0, epoch=8), never)
        assert summary(led(back)) == (0, 6, (0,))


class TestABrokerThatComesBack:
    def test_leads_again_what_only_it_had(self) -> None:
        state = cluster_state(alive(0), topic("t", partition(-1, (1,), (1, 0))))
        decision = brokers_changed(state, alive(0) | alive(1, epoch=5), never)
        assert summary(led(decision)) == (1, 5, (1,))

    def test_does_not_take_back_what_another_leads(self) -> None:
        state = cluster_state(alive(0), topic("t", partition(0, (0,), (1, 0))))
        decision = brokers_changed(state, alive(0) | alive(1, epoch=5), never)
        assert led(decision) == state.topics["t"].partitions[0]

    def test_so_fast_that_nobody_saw_it_go_still_begins_a_new_epoch(self) -> None:
        """KAFKA-7235: the same id with another epoch is another life."""
        state = cluster_state(alive(0), topic("t", partition(0, (0,), (0,))))
        decision = brokers_changed(state, alive(0, epoch=2), never)
        assert summary(led(decision)) == (0, 5, (0,))

    def test_so_fast_that_nobody_saw_it_go_must_catch_up_with_who_stayed(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(0, (0, 1), (0, 1))))
        decision = brokers_changed(state, alive(0, epoch=2) | alive(1), never)
        assert summary(led(decision)) == (1, 5, (1,))

    def test_with_all_others_leads_alone_until_they_have_caught_up(self) -> None:
        """Each may have lost the end of its log, so that none may stand in for another."""
        state = cluster_state(alive(0, 1), topic("t", partition(0, (0, 1), (0, 1))))
        decision = brokers_changed(state, alive(0, 1, epoch=2), never)
        assert summary(led(decision)) == (0, 5, (0,))

    def test_is_told_everything_and_the_others_that_it_is_there(self) -> None:
        parts = [partition(0, (0,), (0,)), partition(0, (0,), (0, 1))]
        state = cluster_state(alive(0), topic("t", *parts))
        decision = brokers_changed(state, alive(0) | alive(1, epoch=5), never)
        [lead, full] = [order.request for order in decision.requests if order.broker == 1]
        assert isinstance(lead, LeaderAndIsrRequest)
        assert [
            leader_and_isr_partition.tp.partition for leader_and_isr_partition in lead.partitions
        ] == [1]
        assert lead.broker_epoch == 5
        assert isinstance(full, UpdateMetadataRequest)
        assert full.is_full
        assert full.topics == tuple(decision.state.topics.values())
        [news] = [order.request for order in decision.requests if order.broker == 0]
        assert isinstance(news, UpdateMetadataRequest)
        assert not news.is_full
        assert news.brokers is not None
        assert [broker.id for broker in news.brokers] == [0, 1]


def test_the_same_brokers_are_no_news() -> None:
    state = cluster_state(alive(0, 1), topic("t", partition(0, (0, 1), (0, 1))))
    assert brokers_changed(state, alive(0, 1), never) == ControllerDecision(state=state)


def test_what_changed_is_written_under_the_version_that_was_known() -> None:
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


def test_survivors_hear_of_their_new_roles_before_clients_do() -> None:
    state = cluster_state(alive(0, 1), topic("t", partition(1, (0, 1), (1, 0))))
    decision = brokers_changed(state, alive(0), never)
    lead, news = [order.request for order in decision.requests]
    assert isinstance(lead, LeaderAndIsrRequest)
    assert [leader_and_isr_partition.state for leader_and_isr_partition in lead.partitions] == [
        led(decision)
    ]
    assert not lead.partitions[0].is_new
    assert isinstance(news, UpdateMetadataRequest)
    assert [each.name for each in news.topics] == ["t"]


class TestAControllerThatTakesOver:
    def test_writes_nothing_where_the_leaders_live(self) -> None:
        state = cluster_state(alive(0), topic("t", *[partition(0, (0,), (0,))] * 5))
        decision = fail_over(state, never)
        assert decision.writes == ()
        assert decision.state == state

    def test_elects_where_the_leader_is_away(self) -> None:
        state = cluster_state(alive(0), topic("t", partition(1, (1, 0), (1, 0))))
        assert summary(led(fail_over(state, never))) == (0, 5, (0,))

    def test_tells_every_broker_its_roles_and_then_everything(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(0, (0, 1), (0, 1))))
        orders = fail_over(state, never).requests
        for broker in (0, 1):
            lead, full = [order.request for order in orders if order.broker == broker]
            assert isinstance(lead, LeaderAndIsrRequest)
            assert isinstance(full, UpdateMetadataRequest)
            assert full.is_full

    def test_orders_of_many_partitions_come_in_pieces(self) -> None:
        state = cluster_state(alive(0), topic("t", *[partition(0, (0,), (0,))] * 120))
        orders = [order.request for order in fail_over(state, never).requests]
        pieces = [
            len(order.partitions) for order in orders if isinstance(order, LeaderAndIsrRequest)
        ]
        assert pieces == [50, 50, 20]

    def test_takes_nobody_for_in_sync_who_has_another_life_since(self) -> None:
        state = cluster_state(alive(0, 1, 2), topic("t", partition(0, (0, 1, 2), (0, 1, 2))))
        restarted = {TopicPartition("t", 0): {BrokerId(0)}}
        assert summary(led(fail_over(state, never, restarted))) == (1, 5, (1, 2))

    def test_lets_one_of_those_lead_where_nobody_stayed(self) -> None:
        state = cluster_state(alive(0, 1), topic("t", partition(1, (0, 1), (0, 1))))
        restarted = {TopicPartition("t", 0): {BrokerId(0), BrokerId(1)}}
        assert summary(led(fail_over(state, never, restarted))) == (1, 5, (1,))


class TestATopicThatIsBeingDeleted:
    def marked(self, *waiting: int) -> ClusterState:
        state = cluster_state(alive(0), topic("t", partition(1, (1,), (1, 0))), topic("u"))
        return replace(state, deleting={"t": frozenset(map(BrokerId, waiting))})

    def test_gets_no_leader(self) -> None:
        decision = fail_over(self.marked(0, 1), always)
        assert decision.writes == ()

    def test_is_removed_from_a_broker_that_comes_back_and_not_shown_to_it(self) -> None:
        state = self.marked(1)
        decision = brokers_changed(state, alive(0) | alive(1, epoch=5), never)
        stop, full = [order.request for order in decision.requests if order.broker == 1]
        assert isinstance(stop, StopReplicaRequest)
        assert stop.delete
        assert [str(tp) for tp in stop.partitions] == ["t-0"]
        assert isinstance(full, UpdateMetadataRequest)
        assert [each.name for each in full.topics] == ["u"]

    def test_is_no_longer_shown_when_only_dead_brokers_have_it(self) -> None:
        state = replace(self.marked(0, 1), brokers=alive(0, 1, 2))
        decision = brokers_changed(state, alive(2), never)
        hidden = [
            order.request.deleted_topics
            for order in decision.requests
            if isinstance(order.request, UpdateMetadataRequest) and order.request.deleted_topics
        ]
        assert hidden == [("t",)]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_leaderless_partition_is_led_when_its_topic_comes_to_allow_it(*, allowed: bool) -> None:
    state = cluster_state(
        alive(0), topic("t", partition(-1, (1,), (1, 0))), topic("u", partition(-1, (1,), (1, 0)))
    )
    decision = elect_leaderless(state, ["t"], lambda _: allowed)
    assert led(decision).leader == (0 if allowed else NO_BROKER)
    assert led(decision, "u").leader == NO_BROKER
    assert bool(decision.requests) == allowed
