"""AlterPartition at the controller: which ISR changes are stored, and what is sent."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.controller.states import EPOCH, alive, cluster_state, partition, topic

from penstock.controller.alter_partition import alter_partition
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.metadata_store.interface import SetData
from penstock.model.alter_partition import (
    AlterPartitionProposal,
    AlterPartitionResult,
    AlterPartitionState,
    IsrMember,
)
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, TopicId

TOPIC = topic("t", partition(0, (0, 1), (0, 1, 2)))
STATE = cluster_state(alive(0, 1, 2), TOPIC)


def change(
    *in_sync: int,
    leader_epoch: int = 4,
    partition_epoch: int = 7,
    number: int = 0,
    topic_id: TopicId = TOPIC.topic_id,
    epoch: int = -1,
) -> AlterPartitionProposal:
    return AlterPartitionProposal(
        topic_id=topic_id,
        partition=number,
        leader_epoch=LeaderEpoch(leader_epoch),
        partition_epoch=partition_epoch,
        in_sync=tuple(IsrMember(BrokerId(number), BrokerEpoch(epoch)) for number in in_sync),
    )


def ask(
    state: ClusterState, *changes: AlterPartitionProposal, broker: int = 0, epoch: int = 1
) -> tuple[ControllerDecision, list[AlterPartitionResult]]:
    return alter_partition(
        state, broker=BrokerId(broker), broker_epoch=BrokerEpoch(epoch), proposals=changes
    )


def answered(stored: PartitionState) -> AlterPartitionState:
    return AlterPartitionState(
        stored.leader, stored.leader_epoch, stored.in_sync, stored.partition_epoch
    )


@pytest.mark.parametrize("in_sync", [(0,), (0, 1, 2), (0, 2), (2, 1, 0)])
def test_the_current_leader_changes_the_isr(in_sync: tuple[int, ...]) -> None:
    decision, [result] = ask(STATE, change(*in_sync))
    stored = decision.state.topics["t"].partitions[0]
    assert result == AlterPartitionResult(ErrorCode.NONE, answered(stored))
    assert (stored.in_sync, stored.partition_epoch, stored.leader_epoch) == (in_sync, 8, 4)
    assert stored.controller_epoch == EPOCH
    [[write]] = decision.writes
    assert isinstance(write, SetData)
    assert (write.path, write.version) == ("/brokers/topics/t/partitions/0/state", 7)


def test_an_isr_change_sends_update_metadata_only() -> None:
    decision, _ = ask(STATE, change(0, 1, 2))
    assert sorted(addressed.broker for addressed in decision.requests) == [0, 1, 2]
    for addressed in decision.requests:
        assert isinstance(addressed.request, UpdateMetadataRequest)
        assert [topic.partitions[0].in_sync for topic in addressed.request.topics] == [(0, 1, 2)]


@pytest.mark.parametrize(
    ("proposal", "broker", "code"),
    [
        (change(0, leader_epoch=3), 0, ErrorCode.FENCED_LEADER_EPOCH),
        (change(0, leader_epoch=5), 0, ErrorCode.NOT_CONTROLLER),
        (change(0, partition_epoch=6), 0, ErrorCode.INVALID_UPDATE_VERSION),
        (change(0, partition_epoch=8), 0, ErrorCode.INVALID_UPDATE_VERSION),
        (change(0, 1), 1, ErrorCode.INVALID_REQUEST),  # not the leader
        (change(1), 0, ErrorCode.INVALID_REQUEST),  # not in its own ISR
        (change(), 0, ErrorCode.INVALID_REQUEST),
        (change(0, 0), 0, ErrorCode.INVALID_REQUEST),
        (change(0, 3), 0, ErrorCode.INVALID_REQUEST),  # not a replica
        (change(0, 1, 2, epoch=2), 0, ErrorCode.INELIGIBLE_REPLICA),  # stale broker epoch
        (change(0, number=1), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(0, number=-1), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(0, topic_id=TopicId(UUID(int=77))), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_rejected_proposal_changes_nothing(
    proposal: AlterPartitionProposal, broker: int, code: ErrorCode
) -> None:
    decision, [result] = ask(STATE, proposal, broker=broker)
    assert result.code is code
    assert decision == ControllerDecision(state=STATE)
    exists = code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result.state == (answered(TOPIC.partitions[0]) if exists else None)


def test_a_proposal_that_is_stored_already_succeeds() -> None:
    """The first response was lost; a rejection would leave the leader with an outdated ISR."""
    decision, [(_, stored)] = ask(STATE, change(0))
    again, [result] = ask(decision.state, change(0))
    assert result == AlterPartitionResult(ErrorCode.NONE, stored)
    assert again == ControllerDecision(state=decision.state)


def test_an_offline_or_shutting_down_broker_cannot_join_the_isr() -> None:
    _, [result] = ask(replace(STATE, brokers=alive(0, 1)), change(0, 1, 2))
    assert result.code is ErrorCode.INELIGIBLE_REPLICA
    leaving = replace(STATE, shutting_down=frozenset((BrokerId(2),)))
    _, [result] = ask(leaving, change(0, 1, 2))
    assert result.code is ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_in_controlled_shutdown_may_still_extend_the_isr() -> None:
    state = cluster_state(alive(0, 1), topic("t", partition(0, (0,), (0, 1))))
    leaving = replace(state, shutting_down=frozenset((BrokerId(0),)))
    _, [result] = ask(leaving, change(0, 1))
    assert result.code is ErrorCode.NONE


@pytest.mark.parametrize(("broker", "epoch"), [(0, 0), (0, 2), (9, 1)])
def test_a_stale_broker_epoch_is_refused(broker: int, epoch: int) -> None:
    with pytest.raises(Refusal) as refused:
        ask(STATE, change(0), broker=broker, epoch=epoch)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_topic_being_deleted_rejects_isr_changes() -> None:
    state = replace(STATE, deleting={"t": frozenset((BrokerId(0),))})
    decision, [result] = ask(state, change(0))
    assert result.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert decision.writes == ()


def test_two_proposals_of_one_partition_build_on_each_other() -> None:
    decision, results = ask(STATE, change(0), change(0, 2), change(0, 2, partition_epoch=8))
    codes = [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE]
    assert [result.code for result in results] == codes
    stored = decision.state.topics["t"].partitions[0]
    assert (stored.in_sync, stored.partition_epoch) == ((0, 2), 9)


def test_the_last_target_replica_in_sync_finishes_the_reassignment() -> None:
    """From broker 0 to brokers 2 and 1; broker 2 was not in sync."""
    reassigning = partition(0, (0, 1), (2, 1, 0))._replace(
        adding=(BrokerId(2),), removing=(BrokerId(0),)
    )
    state = cluster_state(alive(0, 1, 2), topic("t", reassigning))
    decision, [result] = ask(state, change(0, 1, 2))
    assert result.code is ErrorCode.NONE
    after = decision.state.topics["t"].partitions[0]
    assert (after.leader, after.replicas, after.in_sync) == (2, (2, 1), (1, 2))
    assert (after.adding, after.removing) == ((), ())
    assert (after.leader_epoch, after.partition_epoch) == (5, 9)
    assert after.leader != NO_BROKER
    [stop] = [e.request for e in decision.requests if isinstance(e.request, StopReplicaRequest)]
    assert [str(tp) for tp in stop.partitions] == ["t-0"]
    led = {e.broker for e in decision.requests if isinstance(e.request, LeaderAndIsrRequest)}
    assert led == {1, 2}
