"""Elections over random sequences of brokers failing, returning and restarting unseen."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.controller.cluster import node
from tests.unit.controller.states import cluster_state, topic

from penstock.controller.broker_changes import brokers_changed, fail_over
from penstock.controller.new_partitions import new_partition
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.znodes import state_path
from penstock.metadata_store.interface import SetData
from penstock.model.cluster import (
    NO_BROKER,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    LeaderAndIsrRequest,
    PartitionState,
)

EXAMPLES = scaled(test=80, verify=2000, release=20_000)
IDS = tuple(map(BrokerId, range(4)))

Live = Mapping[BrokerId, BrokerNode]


@st.composite
def registrations(draw: st.DrawFn) -> list[Live]:
    """The live brokers, step by step; a new epoch means a restart."""
    steps = draw(
        st.lists(
            st.dictionaries(st.sampled_from(IDS), st.booleans(), max_size=len(IDS)),
            min_size=1,
            max_size=8,
        )
    )
    epochs = dict.fromkeys(IDS, 1)
    history: list[Live] = [{id_: node(id_, epoch=1) for id_ in IDS}]
    for step in steps:
        for broker, is_restarted in step.items():
            if is_restarted or broker not in history[-1]:
                epochs[broker] += 1
        history.append({broker: node(broker, epoch=epochs[broker]) for broker in sorted(step)})
    return history


@st.composite
def assignments(draw: st.DrawFn) -> list[tuple[BrokerId, ...]]:
    one = st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True).map(tuple)
    return draw(st.lists(one, min_size=1, max_size=5))


def first_state(assignment: list[tuple[BrokerId, ...]], live: Live) -> ClusterState:
    epoch = ControllerEpoch(1)
    partitions = [new_partition(replicas, live=live, epoch=epoch) for replicas in assignment]
    return cluster_state(live, topic("t", *partitions))


def partitions_of(state: ClusterState) -> tuple[PartitionState, ...]:
    return state.topics["t"].partitions


def stayed(before: Live, after: Live) -> set[BrokerId]:
    return {
        broker
        for broker in after
        if broker in before and before[broker].epoch == after[broker].epoch
    }


@given(steps=registrations(), assignment=assignments(), unclean=st.booleans())
@settings(max_examples=EXAMPLES, deadline=None)
def test_leaders_come_from_the_isr_whenever_possible(
    *, steps: list[Live], assignment: list[tuple[BrokerId, ...]], unclean: bool
) -> None:
    state = first_state(assignment, steps[0])
    for live in steps[1:]:
        decision = brokers_changed(state, live, lambda _: unclean)
        for before, after in zip(partitions_of(state), partitions_of(decision.state), strict=True):
            check_step(before, after, state.brokers, live, unclean=unclean)
        check_written(state, decision)
        check_told(state, decision)
        state = decision.state


def check_step(
    before: PartitionState, after: PartitionState, old: Live, live: Live, *, unclean: bool
) -> None:
    assert after.in_sync
    assert set(after.in_sync) <= set(after.replicas)
    can_lead = set(live) & set(before.replicas if unclean else before.in_sync)
    assert (after.leader != NO_BROKER) == bool(can_lead)
    if after.leader != NO_BROKER:
        assert after.leader in can_lead
        assert after.leader in after.in_sync
        assert set(after.in_sync) <= set(live)
    if set(live) & set(
        before.in_sync
    ):  # in this case no record is lost, even with unclean election enabled
        assert set(after.in_sync) <= set(before.in_sync)
    steady = stayed(old, live) & set(before.in_sync)
    if steady:
        assert after.leader in steady
        assert set(after.in_sync) == steady
    check_epochs(before, after, has_same_leader=before.leader in stayed(old, live))


def check_epochs(before: PartitionState, after: PartitionState, *, has_same_leader: bool) -> None:
    is_same = before.leader == after.leader and before.in_sync == after.in_sync
    if is_same and (has_same_leader or after.leader == NO_BROKER):
        assert after == before
    else:
        assert after.leader_epoch == before.leader_epoch + 1
        assert after.partition_epoch == before.partition_epoch + 1


def check_written(state: ClusterState, decision: ControllerDecision) -> None:
    """Checks that exactly the changes are stored, each under the previous version."""
    pairs = zip(partitions_of(state), partitions_of(decision.state), strict=True)
    changed = {
        state_path("t", number): before.partition_epoch
        for number, (before, after) in enumerate(pairs)
        if before != after
    }
    written = {
        data.path: data.version
        for step in decision.writes
        for data in step
        if isinstance(data, SetData)
    }
    assert written == changed


def check_told(state: ClusterState, decision: ControllerDecision) -> None:
    """Checks that every live broker with a changed replica gets its newest state."""
    sent: dict[tuple[BrokerId, int], PartitionState] = {}
    for broker, addressed in decision.requests:
        if isinstance(addressed, LeaderAndIsrRequest):
            assert addressed.broker_epoch == decision.state.brokers[broker].epoch
            sent.update({(broker, e.tp.partition): e.state for e in addressed.partitions})
    new = set(decision.state.brokers) - stayed(state.brokers, decision.state.brokers)
    pairs = zip(partitions_of(state), partitions_of(decision.state), strict=True)
    expected = {
        (broker, number): after
        for number, (before, after) in enumerate(pairs)
        for broker in after.replicas
        if broker in decision.state.brokers and (before != after or broker in new)
    }
    assert sent == expected


@given(steps=registrations(), assignment=assignments())
@settings(max_examples=EXAMPLES, deadline=None)
def test_failover_agrees_with_a_controller_that_saw_all_events(
    steps: list[Live], assignment: list[tuple[BrokerId, ...]]
) -> None:
    """It changes nothing, so that a controller election costs no partition its leader."""
    state = first_state(assignment, steps[0])
    for live in steps[1:]:
        state = brokers_changed(state, live, lambda _: False).state
    decision = fail_over(state, lambda _: False)
    assert decision.writes == ()
    assert decision.state == state
