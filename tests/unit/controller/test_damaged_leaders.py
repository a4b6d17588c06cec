"""A leader with a damaged log is replaced from the ISR, if another member is alive."""

import pytest
from tests.unit.controller.states import alive, cluster_state, partition, topic

from penstock.controller.damaged_leaders import replace_damaged_leaders
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.model.cluster import BrokerEpoch, BrokerId, PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

T0 = TopicPartition("t", 0)
EPOCH = BrokerEpoch(1)


def one(part: PartitionState, *live: int) -> ClusterState:
    return cluster_state(alive(*live), topic("t", part))


def replaced(
    state: ClusterState, broker: int = 0, tp: TopicPartition = T0
) -> tuple[ControllerDecision, tuple[int, int, tuple[int, ...]]]:
    decision = replace_damaged_leaders(state, BrokerId(broker), EPOCH, [tp])
    after = decision.state.topics["t"].partitions[0]
    return decision, (after.leader, after.leader_epoch, after.in_sync)


def test_another_in_sync_replica_leads_and_the_damaged_one_leaves_the_isr() -> None:
    decision, after = replaced(one(partition(0, (0, 2), (0, 1, 2)), 0, 1, 2))
    assert after == (2, 5, (2,)), "broker 1 is first in line, but not in sync"
    assert len(decision.writes) == 1
    assert {addressed.broker for addressed in decision.requests} == {0, 1, 2}
    assert not decision.state.failed, "it follows, and may lead again once it is whole"


@pytest.mark.parametrize(
    ("in_sync", "live"), [((0,), (0, 1, 2)), ((0, 1), (0, 2))], ids=["alone", "others are dead"]
)
def test_the_leader_stays_if_no_other_isr_member_is_alive(
    in_sync: tuple[int, ...], live: tuple[int, ...]
) -> None:
    state = one(partition(0, in_sync, (0, 1, 2)), *live)
    decision, after = replaced(state)
    assert after == (0, 4, in_sync)
    assert (decision.state, tuple(decision.writes)) == (state, ())


def test_a_follower_or_an_unknown_partition_changes_nothing() -> None:
    state = one(partition(0, (0, 1), (0, 1)), 0, 1)
    for broker, tp in ((1, T0), (0, TopicPartition("t", 7)), (0, TopicPartition("gone", 0))):
        decision, after = replaced(state, broker, tp)
        assert (after, tuple(decision.writes)) == ((0, 4, (0, 1)), ())


def test_a_stale_broker_is_refused() -> None:
    state = one(partition(0, (0, 1), (0, 1)), 0, 1)
    with pytest.raises(Refusal) as refused:
        replace_damaged_leaders(state, BrokerId(0), BrokerEpoch(99), [T0])
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
