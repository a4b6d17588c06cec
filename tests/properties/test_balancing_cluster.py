"""Random failures while the controller balances by itself, over the pure decisions.

Brokers die, return and join, controllers fail over, followers catch up or not. No partition ever
has fewer replicas than its factor, a replica leaves only after its successor has joined the ISR,
and when the faults end everything is in its place and a further plan is empty.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.profile import scaled
from tests.unit.controller.cluster import node
from tests.unit.controller.states import cluster_state, topic

from penstock.controller.alter_partition import alter_partition
from penstock.controller.balancing.auto_balance import (
    BalancerConfig,
    BalancerMemory,
    layout_of,
    look,
    with_plan,
    without,
    without_plan,
)
from penstock.controller.balancing.layout import CannotBalance
from penstock.controller.balancing.planner import plan_balance
from penstock.controller.broker_changes import brokers_changed, fail_over
from penstock.controller.new_partitions import new_partition
from penstock.controller.reassignment import alter_reassignments, is_reassigning, target_of
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.model.alter_partition import AlterPartitionProposal, IsrMember
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    PartitionState,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

SEEDS = scaled(test=40, verify=1500, release=15_000)
STEPS = 120
LOOK_MS = 500
IDS = tuple(map(BrokerId, range(1, 7)))
FACTOR = 3
CONFIG = BalancerConfig(
    replacement_delay_ms=3000, is_balancing=True, delay_ms=2000, gone_ms=3000, at_once=3
)


class BalancedCluster:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.epoch = 10
        self.memory: BalancerMemory | None = None
        self.counts = {"planned": 0, "begun": 0, "cancelled": 0, "finished": 0}
        live = {broker: node(broker, epoch=1) for broker in IDS[:5]}
        parts = [
            new_partition(
                tuple(self.random.sample(IDS[:4], FACTOR)), live=live, epoch=ControllerEpoch(9)
            )
            for _ in range(12)
        ]
        self.sizes = {TopicPartition("t", n): self.random.randint(0, 50 << 20) for n in range(12)}
        self.state: ClusterState = cluster_state(live, topic("t", *parts))

    @property
    def partitions(self) -> tuple[PartitionState, ...]:
        return self.state.topics["t"].partitions

    def apply(self, decision: ControllerDecision) -> None:
        before, self.state = self.partitions, decision.state
        for old, new in zip(before, self.partitions, strict=True):
            check(old, new)
            self.counts["finished"] += is_reassigning(old) and not is_reassigning(new)

    # Events.

    def look(self) -> None:
        self.now_ms += LOOK_MS
        step = look(self.memory, self.state, CONFIG, self.now_ms)
        self.memory = step.memory
        if step.reassignments:
            self.counts["begun"] += sum(one.replicas is not None for one in step.reassignments)
            self.counts["cancelled"] += sum(one.replicas is None for one in step.reassignments)
            decision, results = alter_reassignments(
                self.state, step.reassignments, allow_replication_factor_change=False
            )
            refused = [
                one.tp
                for one, error in zip(step.reassignments, results, strict=True)
                if error is not None
            ]
            self.memory = without(self.memory, refused)
            self.apply(decision)
        if step.goals is not None:
            try:
                plan = plan_balance(layout_of(self.state, self.sizes), step.goals)
            except CannotBalance as error:
                self.memory, _ = without_plan(self.memory, str(error), self.now_ms)
            else:
                self.counts["planned"] += bool(plan.reassignments)
                self.memory, _ = with_plan(self.memory, plan, step.goals, self.now_ms)

    def change_brokers(self, live: set[BrokerId]) -> None:
        self.epoch += 1
        nodes = {
            broker: self.state.brokers.get(broker) or node(broker, epoch=self.epoch)
            for broker in sorted(live)
        }
        self.apply(brokers_changed(self.state, nodes, lambda topic: False))

    def fault(self) -> None:
        live = set(self.state.brokers)
        broker = self.random.choice(IDS)
        if broker not in live:
            self.change_brokers(live | {broker})
        elif len(live) > 2:
            self.change_brokers(live - {broker})

    def fail_over(self) -> None:
        self.memory = None
        epoch = ControllerEpoch(self.state.controller_epoch + 1)
        self.apply(fail_over(replace(self.state, controller_epoch=epoch), lambda topic: False))

    def catch_up(self, share: float) -> None:
        """Leaders propose followers that have caught up."""
        for number, part in enumerate(self.partitions):
            followers = [
                broker
                for broker in part.replicas
                if broker in self.state.brokers
                and (broker in part.in_sync or self.random.random() < share)
            ]
            if part.leader == NO_BROKER or set(followers) == set(part.in_sync):
                continue
            proposal = AlterPartitionProposal(
                topic_id=self.state.topics["t"].topic_id,
                partition=number,
                leader_epoch=part.leader_epoch,
                partition_epoch=part.partition_epoch,
                in_sync=tuple(IsrMember(broker, BrokerEpoch(-1)) for broker in followers),
            )
            decision, [result] = alter_partition(
                self.state,
                broker=part.leader,
                broker_epoch=self.state.brokers[part.leader].epoch,
                proposals=[proposal],
            )
            assert result.code is ErrorCode.NONE
            self.apply(decision)

    def step(self) -> None:
        self.look()
        chance = self.random.random()
        if chance < 0.08:
            self.fault()
        elif chance < 0.1:
            self.fail_over()
        self.catch_up(0.3)


def check(old: PartitionState, new: PartitionState) -> None:
    assert len(target_of(new)) == FACTOR
    assert len(set(new.replicas)) == len(new.replicas) >= FACTOR
    for broker in set(old.replicas) - set(new.replicas):
        assert broker in old.adding or set(target_of(old)) <= {*old.in_sync, *new.in_sync}
    assert new.in_sync


@pytest.mark.parametrize("portion", range(2))
def test_no_failure_takes_a_replica_away_and_all_is_balanced_in_the_end(portion: int) -> None:
    counts: dict[str, int] = {}
    for seed in range(portion, SEEDS, 2):
        cluster = BalancedCluster(seed)
        for _ in range(STEPS):
            cluster.step()
        cluster.change_brokers(set(IDS))
        for _ in range(400):
            cluster.look()
            cluster.catch_up(1.0)
        assert cluster.memory is not None
        assert (cluster.memory.pending, cluster.memory.under_way) == ((), {}), seed
        assert all(not is_reassigning(part) for part in cluster.partitions), seed
        plan = plan_balance(layout_of(cluster.state, cluster.sizes))
        assert plan.reassignments == (), (seed, plan)
        for name, count in cluster.counts.items():
            counts[name] = counts.get(name, 0) + count
    assert all(count >= 5 for count in counts.values()), counts
