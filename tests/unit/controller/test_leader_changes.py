"""Leaders that change although nobody died: preferred, unclean on demand, before a stop."""

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
    found = state.topics[name].partitions[number]
    return found.leader, found.leader_epoch, found.in_sync


def one(part: PartitionState, *live: int) -> ClusterState:
    return cluster_state(alive(*live), topic("t", part))


T0 = TopicPartition("t", 0)


def codes(answers: Mapping[TopicPartition, object]) -> dict[str, object]:
    return {str(name): getattr(each, "code", None) for name, each in answers.items()}


class TestThePreferredLeader:
    def test_leads_again_and_nobody_leaves_the_in_sync_set(self) -> None:
        state = one(partition(1, (1, 0), (0, 1)), 0, 1)
        decision, answers = elect_leaders(state, PREFERRED, [T0])
        assert answers == {T0: None}
        assert summary(decision.state) == (0, 5, (1, 0))
        told = [e.broker for e in decision.requests if isinstance(e.request, LeaderAndIsrRequest)]
        assert told == [0, 1]

    @pytest.mark.parametrize(
        ("part", "live", "code"),
        [
            (partition(0, (0, 1), (0, 1)), (0, 1), ErrorCode.ELECTION_NOT_NEEDED),
            (partition(1, (1,), (0, 1)), (0, 1), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            (partition(-1, (0,), (0, 1)), (1,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ],
    )
    def test_does_not_lead_where_it_cannot_or_does(
        self, part: PartitionState, live: tuple[int, ...], code: ErrorCode
    ) -> None:
        state = one(part, *live)
        decision, answers = elect_leaders(state, PREFERRED, [T0])
        assert codes(answers) == {"t-0": code}
        assert decision == ControllerDecision(state=state)

    def test_does_not_come_back_to_a_broker_that_is_about_to_leave(self) -> None:
        state = replace(
            one(partition(1, (1, 0), (0, 1)), 0, 1), shutting_down=frozenset((BrokerId(0),))
        )
        _, answers = elect_leaders(state, PREFERRED, [T0])
        assert codes(answers) == {"t-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}

    def test_of_all_partitions_only_those_are_told_that_need_it(self) -> None:
        parts = [
            partition(0, (0, 1), (0, 1)),
            partition(1, (0, 1), (0, 1)),
            partition(1, (1,), (0, 1)),
        ]
        state = cluster_state(alive(0, 1), topic("t", *parts), topic("u", parts[0]))
        decision, answers = elect_leaders(state, PREFERRED, None)
        assert codes(answers) == {
            "t-1": None,
            "t-2": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        }
        assert len(decision.writes) == 1

    def test_is_not_found_for_what_is_not_there(self) -> None:
        state = one(partition(0, (0,), (0,)), 0)
        names = [TopicPartition("t", 1), TopicPartition("t", -1), TopicPartition("v", 0)]
        _, answers = elect_leaders(state, PREFERRED, names)
        assert set(codes(answers).values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class TestAnUncleanElection:
    def test_takes_the_first_live_replica_alone(self) -> None:
        state = one(partition(-1, (0,), (0, 1, 2)), 1, 2)
        decision, answers = elect_leaders(state, UNCLEAN, [T0])
        assert answers == {T0: None}
        assert summary(decision.state) == (1, 5, (1,))

    @pytest.mark.parametrize(
        ("part", "live", "code"),
        [
            (partition(1, (1,), (0, 1)), (0, 1), ErrorCode.ELECTION_NOT_NEEDED),
            (partition(-1, (0,), (0, 1)), (2,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        ],
    )
    def test_is_refused_where_somebody_leads_or_nobody_can(
        self, part: PartitionState, live: tuple[int, ...], code: ErrorCode
    ) -> None:
        _, answers = elect_leaders(one(part, *live), UNCLEAN, [T0])
        assert codes(answers) == {"t-0": code}


class TestImbalance:
    def led_elsewhere(self, away: int, of: int) -> ClusterState:
        parts = [partition(1 if n < away else 0, (0, 1), (0, 1)) for n in range(of)]
        return cluster_state(alive(0, 1), topic("t", *parts))

    def test_is_of_a_broker_that_leads_too_few_of_its_own(self) -> None:
        found = find_imbalanced(self.led_elsewhere(2, 10), limit_percent=10)
        assert [str(tp) for tp in found] == ["t-0", "t-1"]

    def test_up_to_the_limit_is_none(self) -> None:
        assert find_imbalanced(self.led_elsewhere(1, 10), limit_percent=10) == []

    def test_leaves_alone_who_is_not_in_sync_away_leaving_or_moving(self) -> None:
        behind = partition(1, (1,), (0, 1))
        away = partition(1, (1,), (2, 1))
        moving = partition(1, (0, 1), (0, 1))._replace(removing=(BrokerId(1),))
        state = cluster_state(alive(0, 1), topic("t", behind, away, moving))
        assert find_imbalanced(state, limit_percent=0) == []
        leaving = replace(self.led_elsewhere(2, 2), shutting_down=frozenset((BrokerId(0),)))
        assert find_imbalanced(leaving, limit_percent=0) == []


class TestABrokerThatIsAboutToLeave:
    def go(self, state: ClusterState, broker: int = 0) -> tuple[ControllerDecision, list[str]]:
        decision, left = controlled_shutdown(state, BrokerId(broker), BrokerEpoch(1))
        return decision, [str(tp) for tp in left]

    def test_hands_over_to_the_next_in_sync_replica(self) -> None:
        decision, left = self.go(one(partition(0, (0, 1, 2), (0, 2, 1)), 0, 1, 2))
        assert left == []
        assert summary(decision.state) == (2, 5, (1, 2))
        told = {e.broker for e in decision.requests if isinstance(e.request, LeaderAndIsrRequest)}
        assert told == {0, 1, 2}

    def test_is_in_sync_no_more_where_it_follows(self) -> None:
        decision, _ = self.go(one(partition(1, (0, 1), (0, 1)), 0, 1))
        assert summary(decision.state) == (1, 5, (1,))

    def test_keeps_what_nobody_else_can_lead_and_says_so(self) -> None:
        state = one(partition(0, (0,), (0, 1)), 0, 1)
        decision, left = self.go(state)
        assert left == ["t-0"]
        assert decision.writes == ()
        assert decision.state.shutting_down == {0}

    @pytest.mark.parametrize("replicas", [(0,), (0, 2), (2, 0)])
    def test_does_not_wait_where_no_other_replica_is_alive(self, replicas: tuple[int, ...]) -> None:
        _, left = self.go(one(partition(0, (0,), replicas), 0, 1))
        assert left == []

    def test_does_not_hand_over_to_another_that_leaves(self) -> None:
        first, _ = self.go(one(partition(1, (0, 1, 2), (0, 1, 2)), 0, 1, 2), 0)
        second, left = self.go(first.state, 2)
        assert (summary(second.state), left) == ((1, 6, (1,)), [])
        last, left = self.go(second.state, 1)
        assert (summary(last.state), left) == ((1, 6, (1,)), [])  # nobody stays to wait for

    def test_is_not_elected_while_another_can_be(self) -> None:
        state = one(partition(2, (0, 1, 2), (0, 1, 2)), 0, 1, 2)
        marked = replace(state, shutting_down=frozenset((BrokerId(0),)))
        decision = brokers_changed(marked, alive(0, 1), lambda _: False)
        assert decision.state.topics["t"].partitions[0].leader == 1

    def test_that_comes_back_is_not_leaving_any_more(self) -> None:
        decision, _ = self.go(one(partition(0, (0, 1), (0, 1)), 0, 1))
        back = brokers_changed(decision.state, alive(0, epoch=2) | alive(1), lambda _: False)
        assert back.state.shutting_down == frozenset()

    def test_must_be_registered_in_the_life_that_asks(self) -> None:
        with pytest.raises(Refusal) as refused:
            controlled_shutdown(one(partition(0, (0,), (0,)), 0), BrokerId(0), BrokerEpoch(2))
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH

    def test_leaves_leaderless_partitions_and_deleted_topics_alone(self) -> None:
        state = cluster_state(
            alive(0, 1),
            topic("t", partition(-1, (0, 2), (0, 2))),
            topic("u", partition(0, (0, 1), (0, 1))),
        )
        marked = replace(state, deleting={"u": frozenset((BrokerId(0),))})
        decision, left = self.go(marked)
        assert (decision.writes, left) == ((), [])
        assert decision.state.topics["t"].partitions[0].leader == NO_BROKER
