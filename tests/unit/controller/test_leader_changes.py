"""Leader changes without a failure: preferred and unclean elections, controlled shutdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.unit.controller.states import alive, cluster_state, partition, topic

from penstock.controller.broker_changes import brokers_changed
from penstock.controller.leader_changes import controlled_shutdown, elect_leaders, find_imbalanced
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.model.admin import ElectionType
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderAndIsrRequest,
    PartitionState,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def summary(state: ClusterState, name: str = "t", number: int = 0) -> tuple[int, int, object]:
    partition = state.topics[name].partitions[number]
    return partition.leader, partition.leader_epoch, partition.in_sync


def one(part: PartitionState, *live: int) -> ClusterState:
    return cluster_state(alive(*live), topic("t", part))


T0 = TopicPartition("t", 0)


def codes(results: Mapping[TopicPartition, object]) -> dict[str, object]:
    return {str(name): getattr(error, "code", None) for name, error in results.items()}


class TestPreferredElection:
    def test_elects_the_preferred_leader_and_keeps_the_isr(self) -> None:
        state = one(partition(1, (1, 0), (0, 1)), 0, 1)
        decision, results = elect_leaders(state, PREFERRED, [T0])
        assert results == {T0: None}
        assert summary(decision.state) == (0, 5, (1, 0))
        notified = [
            e.broker for e in decision.requests if isinstance(e.request, LeaderAndIsrRequest)
        ]
        assert notified == [0, 1]

    @pytest.mark.parametrize(
        ("part", "live", "code"),
        [
            (partition(0, (0, 1), (0, 1)), (0, 1), ErrorCode.ELECTION_NOT_NEEDED),
            (partition(1, (1,), (0, 1)), (0, 1), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            (partition(-1, (0,), (0, 1)), (1,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ],
    )
    def test_is_refused_if_not_possible_or_not_needed(
        self, part: PartitionState, live: tuple[int, ...], code: ErrorCode
    ) -> None:
        state = one(part, *live)
        decision, results = elect_leaders(state, PREFERRED, [T0])
        assert codes(results) == {"t-0": code}
        assert decision == ControllerDecision(state=state)

    def test_does_not_elect_a_broker_in_controlled_shutdown(self) -> None:
        state = replace(
            one(partition(1, (1, 0), (0, 1)), 0, 1), shutting_down=frozenset((BrokerId(0),))
        )
        _, results = elect_leaders(state, PREFERRED, [T0])
        assert codes(results) == {"t-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}

    def test_of_all_partitions_returns_only_those_that_need_it(self) -> None:
        parts = [
            partition(0, (0, 1), (0, 1)),
            partition(1, (0, 1), (0, 1)),
            partition(1, (1,), (0, 1)),
        ]
        state = cluster_state(alive(0, 1), topic("t", *parts), topic("u", parts[0]))
        decision, results = elect_leaders(state, PREFERRED, None)
        assert codes(results) == {
            "t-1": None,
            "t-2": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        }
        assert len(decision.writes) == 1

    def test_is_refused_for_unknown_partitions(self) -> None:
        state = one(partition(0, (0,), (0,)), 0)
        names = [TopicPartition("t", 1), TopicPartition("t", -1), TopicPartition("v", 0)]
        _, results = elect_leaders(state, PREFERRED, names)
        assert set(codes(results).values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class TestUncleanElection:
    def test_leaves_only_the_first_live_replica_in_sync(self) -> None:
        state = one(partition(-1, (0,), (0, 1, 2)), 1, 2)
        decision, results = elect_leaders(state, UNCLEAN, [T0])
        assert results == {T0: None}
        assert summary(decision.state) == (1, 5, (1,))

    @pytest.mark.parametrize(
        ("part", "live", "code"),
        [
            (partition(1, (1,), (0, 1)), (0, 1), ErrorCode.ELECTION_NOT_NEEDED),
            (partition(-1, (0,), (0, 1)), (2,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        ],
    )
    def test_is_refused_if_there_is_a_leader_or_no_live_replica(
        self, part: PartitionState, live: tuple[int, ...], code: ErrorCode
    ) -> None:
        _, results = elect_leaders(one(part, *live), UNCLEAN, [T0])
        assert codes(results) == {"t-0": code}


class TestLeaderImbalance:
    def led_elsewhere(self, offline: int, of: int) -> ClusterState:
        parts = [partition(1 if n < offline else 0, (0, 1), (0, 1)) for n in range(of)]
        return cluster_state(alive(0, 1), topic("t", *parts))

    def test_names_partitions_of_brokers_above_the_limit(self) -> None:
        imbalanced = find_imbalanced(self.led_elsewhere(2, 10), limit_percent=10)
        assert [str(tp) for tp in imbalanced] == ["t-0", "t-1"]

    def test_names_none_up_to_the_limit(self) -> None:
        assert find_imbalanced(self.led_elsewhere(1, 10), limit_percent=10) == []

    def test_skips_brokers_out_of_sync_offline_or_shutting_down_and_reassignments(self) -> None:
        behind = partition(1, (1,), (0, 1))
        offline = partition(1, (1,), (2, 1))
        reassigning = partition(1, (0, 1), (0, 1))._replace(removing=(BrokerId(1),))
        state = cluster_state(alive(0, 1), topic("t", behind, offline, reassigning))
        assert find_imbalanced(state, limit_percent=0) == []
        leaving = replace(self.led_elsewhere(2, 2), shutting_down=frozenset((BrokerId(0),)))
        assert find_imbalanced(leaving, limit_percent=0) == []


class TestControlledShutdown:
    def go(self, state: ClusterState, broker: int = 0) -> tuple[ControllerDecision, list[str]]:
        decision, left = controlled_shutdown(state, BrokerId(broker), BrokerEpoch(1))
        return decision, [str(tp) for tp in left]

    def test_elects_the_next_in_sync_replica(self) -> None:
        decision, left = self.go(one(partition(0, (0, 1, 2), (0, 2, 1)), 0, 1, 2))
        assert left == []
        assert summary(decision.state) == (2, 5, (1, 2))
        notified = {
            e.broker for e in decision.requests if isinstance(e.request, LeaderAndIsrRequest)
        }
        assert notified == {0, 1, 2}

    def test_removes_the_broker_from_isrs_where_it_follows(self) -> None:
        decision, _ = self.go(one(partition(1, (0, 1), (0, 1)), 0, 1))
        assert summary(decision.state) == (1, 5, (1,))

    def test_returns_partitions_that_no_other_replica_can_lead_yet(self) -> None:
        state = one(partition(0, (0,), (0, 1)), 0, 1)
        decision, left = self.go(state)
        assert left == ["t-0"]
        assert decision.writes == ()
        assert decision.state.shutting_down == {0}

    @pytest.mark.parametrize("replicas", [(0,), (0, 2), (2, 0)])
    def test_does_not_return_partitions_without_another_live_replica(
        self, replicas: tuple[int, ...]
    ) -> None:
        _, left = self.go(one(partition(0, (0,), replicas), 0, 1))
        assert left == []

    def test_does_not_elect_another_broker_that_shuts_down(self) -> None:
        first, _ = self.go(one(partition(1, (0, 1, 2), (0, 1, 2)), 0, 1, 2), 0)
        second, left = self.go(first.state, 2)
        assert (summary(second.state), left) == ((1, 6, (1,)), [])
        last, left = self.go(second.state, 1)
        assert (summary(last.state), left) == ((1, 6, (1,)), [])  # no other broker is left

    def test_avoids_electing_the_broker(self) -> None:
        state = one(partition(2, (0, 1, 2), (0, 1, 2)), 0, 1, 2)
        marked = replace(state, shutting_down=frozenset((BrokerId(0),)))
        decision = brokers_changed(marked, alive(0, 1), lambda _: False)
        assert decision.state.topics["t"].partitions[0].leader == 1

    def test_ends_with_a_restart(self) -> None:
        decision, _ = self.go(one(partition(0, (0, 1), (0, 1)), 0, 1))
        back = brokers_changed(decision.state, alive(0, epoch=2) | alive(1), lambda _: False)
        assert back.state.shutting_down == frozenset()

    def test_is_refused_for_a_stale_broker_epoch(self) -> None:
        with pytest.raises(Refusal) as refused:
            controlled_shutdown(one(partition(0, (0,), (0,)), 0), BrokerId(0), BrokerEpoch(2))
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH

    def test_ignores_leaderless_partitions_and_deleted_topics(self) -> None:
        state = cluster_state(
            alive(0, 1),
            topic("t", partition(-1, (0, 2), (0, 2))),
            topic("u", partition(0, (0, 1), (0, 1))),
        )
        marked = replace(state, deleting={"u": frozenset((BrokerId(0),))})
        decision, left = self.go(marked)
        assert (decision.writes, left) == ((), [])
        assert decision.state.topics["t"].partitions[0].leader == NO_BROKER
