"""When the controller replaces replicas or evens out brokers by itself, and when it does not."""

from dataclasses import replace

import pytest
from tests.unit.controller.states import alive, cluster_state, partition, topic

from penstock.controller.balancing.auto_balance import (
    RETRY_MS,
    BalancerConfig,
    BalancerMemory,
    BalancerStep,
    layout_of,
    look,
    with_plan,
)
from penstock.controller.balancing.layout import BalanceGoals
from penstock.controller.balancing.planner import plan_balance
from penstock.controller.reassignment import alter_reassignments, find_reassignments, target_of
from penstock.controller.state import ClusterState
from penstock.model.cluster import BrokerId

DELAY_MS = 1000
REPLACING = BalancerConfig(replacement_delay_ms=DELAY_MS, at_once=2)
BALANCING = BalancerConfig(is_balancing=True, delay_ms=DELAY_MS, gone_ms=10 * DELAY_MS)


def cluster(*ids: int, partitions: int = 4) -> ClusterState:
    """The replicas are on 1, 2 and 3; those that are not alive are out of the ISR."""
    in_sync = tuple(broker for broker in (1, 2, 3) if broker in ids)
    parts = [partition(in_sync[0], in_sync, (1, 2, 3)) for _ in range(partitions)]
    return cluster_state(alive(*ids), topic("t", *parts))


def planned(step: BalancerStep, state: ClusterState, now_ms: int) -> BalancerMemory:
    assert step.goals is not None
    plan = plan_balance(layout_of(state, {}), step.goals)
    return with_plan(step.memory, plan, step.goals, now_ms)[0]


def carried_out(state: ClusterState, step: BalancerStep) -> ClusterState:
    decision, results = alter_reassignments(state, step.reassignments)
    assert set(results) <= {None}
    return decision.state


def caught_up(state: ClusterState) -> ClusterState:
    """Every replica of a live broker is in sync, and reassignments are finished."""
    [only] = state.topics.values()
    parts = tuple(
        part._replace(
            replicas=tuple(b for b in part.replicas if b not in part.removing),
            in_sync=tuple(
                b for b in part.replicas if b in state.brokers and b not in part.removing
            ),
            adding=(),
            removing=(),
        )
        for part in only.partitions
    )
    return state.with_topics([replace(only, partitions=tuple(parts))])


def test_a_broker_is_replaced_when_the_delay_is_over_and_not_before() -> None:
    state = cluster(1, 2, 4)
    first = look(None, state, REPLACING, 0)
    assert first.goals is None
    early = look(first.memory, state, REPLACING, DELAY_MS - 1)
    assert early.goals is None
    late = look(early.memory, state, REPLACING, DELAY_MS)
    assert late.goals == BalanceGoals(removed=frozenset([BrokerId(3)]), only_removed=True)


def test_some_partitions_at_once_are_replaced_and_each_keeps_its_replicas_meanwhile() -> None:
    state = cluster(1, 2, 4)
    step = look(look(None, state, REPLACING, 0).memory, state, REPLACING, DELAY_MS)
    memory = planned(step, state, DELAY_MS)
    seen = 0
    while True:
        step = look(memory, state, REPLACING, DELAY_MS)
        memory = step.memory
        assert len(memory.under_way) <= REPLACING.at_once
        if step.elect:
            break
        state = carried_out(state, step)
        for part in state.topics["t"].partitions:
            assert {1, 2, 3} <= set(part.replicas) or set(part.replicas) == {1, 2, 4}
        seen += len(step.reassignments)
        state = caught_up(state)
    assert seen == len(step.elect) == 4
    assert all(set(part.replicas) == {1, 2, 4} for part in state.topics["t"].partitions)
    assert look(memory, state, REPLACING, 10 * RETRY_MS).goals is None


def test_a_broker_that_returns_undoes_what_has_not_finished() -> None:
    state = cluster(1, 2, 4)
    step = look(look(None, state, REPLACING, 0).memory, state, REPLACING, DELAY_MS)
    step = look(planned(step, state, DELAY_MS), state, REPLACING, DELAY_MS)
    state = carried_out(state, step)
    back = replace(state, brokers=alive(1, 2, 3, 4))
    step = look(step.memory, back, REPLACING, DELAY_MS + 1)
    assert {one.replicas for one in step.reassignments} == {None}
    assert len(step.reassignments) == REPLACING.at_once
    assert [event.event for event in step.events] == ["replacement_undone"]
    after = carried_out(back, step)
    assert all(part.replicas == (1, 2, 3) for part in after.topics["t"].partitions)
    step = look(step.memory, after, REPLACING, 100 * DELAY_MS)
    assert (step.memory.pending, step.goals) == ((), None)


def test_no_clock_runs_while_several_brokers_are_gone() -> None:
    state = cluster(1, 4)
    memory = look(None, state, REPLACING, 0).memory
    step = look(memory, state, REPLACING, 100 * DELAY_MS)
    assert step.goals is None
    assert step.memory.held == "brokers 2, 3 are gone at once"
    one_is_back = replace(state, brokers=alive(1, 2, 4))
    step = look(step.memory, one_is_back, REPLACING, 100 * DELAY_MS + 1)
    assert (step.goals, step.memory.held) == (None, "")
    assert look(step.memory, one_is_back, REPLACING, 100 * DELAY_MS + 2).goals is None
    assert look(step.memory, one_is_back, REPLACING, 101 * DELAY_MS).goals is not None


def test_a_large_cluster_replaces_one_broker_in_ten() -> None:
    parts = [partition(1, (1,), (1, 2, 3)), partition(4, (4,), (4, 5, 6))]
    state = cluster_state(alive(1, *range(4, 22)), topic("t", *parts))
    step = look(look(None, state, REPLACING, 0).memory, state, REPLACING, DELAY_MS)
    assert step.goals is not None
    assert step.goals.removed == {2, 3}


def test_a_cancelled_replacement_is_not_begun_again_until_the_broker_was_back() -> None:
    state = cluster(1, 2, 4)
    step = look(look(None, state, REPLACING, 0).memory, state, REPLACING, DELAY_MS)
    step = look(planned(step, state, DELAY_MS), state, REPLACING, DELAY_MS)
    step = look(step.memory, state, REPLACING, 2 * DELAY_MS)  # nothing is being reassigned
    assert [event.event for event in step.events] == ["balance_cancelled"]
    assert (step.memory.pending, step.memory.under_way) == ((), {})
    for now_ms in (RETRY_MS * 2, RETRY_MS * 4):
        step = look(step.memory, state, REPLACING, now_ms)
        assert step.goals is None
    back = look(step.memory, replace(state, brokers=alive(1, 2, 3, 4)), REPLACING, RETRY_MS * 5)
    step = look(back.memory, state, REPLACING, RETRY_MS * 6)
    assert look(step.memory, state, REPLACING, RETRY_MS * 6 + DELAY_MS).goals is not None


def test_a_broker_that_joins_is_filled_after_a_quiet_time() -> None:
    state = cluster(1, 2, 3)
    settled = replace(look(None, state, BALANCING, 0).memory, wants_balance=False)
    assert look(settled, state, BALANCING, 100 * DELAY_MS).goals is None
    joined = replace(state, brokers=alive(1, 2, 3, 4))
    step = look(settled, joined, BALANCING, 100 * DELAY_MS)
    assert step.goals is None
    step = look(step.memory, joined, BALANCING, 101 * DELAY_MS)
    assert step.goals == BalanceGoals()


def test_nothing_is_evened_out_while_a_broker_is_missing_until_it_is_gone_for_good() -> None:
    state = cluster(1, 2, 4)
    memory = look(None, state, BALANCING, 0).memory
    assert look(memory, state, BALANCING, 9 * DELAY_MS).goals is None
    goals = look(memory, state, BALANCING, 10 * DELAY_MS).goals
    assert goals == BalanceGoals(removed=frozenset([BrokerId(3)]), only_removed=False)


def test_a_change_of_the_brokers_drops_what_was_not_begun() -> None:
    state = cluster(1, 2, 4)
    step = look(look(None, state, REPLACING, 0).memory, state, REPLACING, DELAY_MS)
    step = look(planned(step, state, DELAY_MS), state, REPLACING, DELAY_MS)
    assert len(step.memory.pending) == 2
    more = replace(carried_out(state, step), brokers=alive(1, 2, 4, 5))
    step = look(step.memory, more, REPLACING, DELAY_MS + 1)
    assert (step.memory.pending, len(step.memory.under_way)) == ((), 2)


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_broker_that_dies_during_balancing_is_replaced_although_reassignments_wait_for_it(
    fails_over: bool,
) -> None:
    state = cluster(1, 2, 3, 4, 5)
    step = look(look(None, state, BALANCING, 0).memory, state, BALANCING, DELAY_MS)
    step = look(planned(step, state, DELAY_MS), state, BALANCING, DELAY_MS)
    state = replace(carried_out(state, step), brokers=alive(1, 3, 4, 5))
    under_way = find_reassignments(state)
    waiting = {tp for tp, part in under_way.items() if BrokerId(2) in target_of(part)}
    assert waiting
    step = look(None if fails_over else step.memory, state, BALANCING, DELAY_MS)
    step = look(step.memory, state, BALANCING, 11 * DELAY_MS)
    assert {tp for tp, replicas in step.reassignments if replicas is None} == waiting
    assert [event.event for event in step.events] == ["balance_stuck"]
    memory = step.memory
    for now_ms in range(12 * DELAY_MS, 20 * DELAY_MS, DELAY_MS):
        state = caught_up(carried_out(state, step))
        step = look(memory, state, BALANCING, now_ms)
        memory = step.memory if step.goals is None else planned(step, state, now_ms)
    assert all(len(part.replicas) == 3 for part in state.topics["t"].partitions)
    assert all(2 not in part.replicas for part in state.topics["t"].partitions)
