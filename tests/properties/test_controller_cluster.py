"""Random events over the pure decision functions and versioned znodes.

Every member of an ISR may lead, epochs only rise, and the znodes equal the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import pytest
from tests.profile import scaled
from tests.unit.controller.cluster import node
from tests.unit.controller.states import cluster_state, topic

from penstock.controller.alter_partition import alter_partition
from penstock.controller.broker_changes import brokers_changed, fail_over
from penstock.controller.interface import Reassignment
from penstock.controller.leader_changes import controlled_shutdown, elect_leaders, find_imbalanced
from penstock.controller.new_partitions import new_partition
from penstock.controller.reassignment import alter_reassignments, is_reassigning, target_of
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.znodes import decode_state, decode_topic, encode_state, encode_topic
from penstock.metadata_store.interface import NO_SESSION, SetData, Stat, Value
from penstock.model.admin import ElectionType
from penstock.model.alter_partition import AlterPartitionProposal, IsrMember
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    TopicState,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

SEEDS = scaled(test=150, verify=4000, release=40_000)
STEPS = 40
IDS = tuple(map(BrokerId, range(5)))
PARTITIONS = 3


def never(_: TopicState) -> bool:
    return False


class Tree:
    """The znodes of one topic, with their versions."""

    def __init__(self, state: ClusterState) -> None:
        made = state.topics["t"]
        self.topic = encode_topic(made.topic_id, made.partitions)
        self.states = [encode_state(partition) for partition in made.partitions]
        self.versions = [partition.partition_epoch for partition in made.partitions]

    def write(self, decision: ControllerDecision, *, until: int | None = None) -> None:
        """Applies all steps, or as many as a crash leaves."""
        for step in decision.writes[:until]:
            for create in step:
                assert isinstance(create, SetData)
                if create.path == "/brokers/topics/t":
                    self.topic = create.data
                    continue
                number = int(create.path.split("/")[-2])
                assert create.version == self.versions[number], "written upon what was not known"
                self.states[number] = create.data
                self.versions[number] += 1

    def read(self) -> tuple[PartitionState, ...]:
        node = decode_topic("t", self.topic)
        return tuple(
            decode_state(
                "t",
                Value(data, Stat(0, 0, 0, 0, 0, self.versions[number], 0, NO_SESSION, 0, 0)),
                replicas=node.replicas[number],
                adding=node.adding.get(number, ()),
                removing=node.removing.get(number, ()),
            )
            for number, data in enumerate(self.states)
        )


class Scenario:
    """One random run. `committed` models the replicas that hold all acknowledged records."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.epochs = dict.fromkeys(IDS, 1)
        live = {id_: node(id_, epoch=1) for id_ in IDS}
        parts = [
            new_partition(tuple(self.random.sample(IDS, 3)), live=live, epoch=ControllerEpoch(1))
            for _ in range(PARTITIONS)
        ]
        self.state = cluster_state(live, topic("t", *parts))
        self.tree = Tree(self.state)
        self.counts: dict[str, int] = {}

    @property
    def parts(self) -> tuple[PartitionState, ...]:
        return self.state.topics["t"].partitions

    def step(self) -> None:
        kinds: list[Callable[[], ControllerDecision]] = [
            self.brokers,
            self.in_sync,
            self.in_sync,
            self.in_sync,
            self.move,
            self.prefer,
            self.controlled_shutdown,
            self.other_controller,
        ]
        work = self.random.choice(kinds)
        before = self.parts
        decision = work()
        self.check(before, decision)
        self.state = decision.state
        name = work.__name__
        self.counts[name] = self.counts.get(name, 0) + bool(decision.writes)

    # Events.

    def brokers(self) -> ControllerDecision:
        """Some brokers fail, some return, some restart unseen; at least one is always alive."""
        live = {}
        for id_ in IDS:
            fate = self.random.random()
            if id_ in self.state.brokers and fate < 0.75:
                live[id_] = self.state.brokers[id_]
            elif fate < 0.9 or (not live and id_ == IDS[-1]):
                self.epochs[id_] += 1
                live[id_] = node(id_, epoch=self.epochs[id_])
        return brokers_changed(self.state, live, never)

    def in_sync(self) -> ControllerDecision:
        number = self.random.randrange(PARTITIONS)
        part = self.parts[number]
        if part.leader == NO_BROKER:
            return ControllerDecision(state=self.state)
        others = [broker for broker in part.replicas if broker != part.leader]
        wanted = (part.leader, *self.random.sample(others, self.random.randint(0, len(others))))
        change = AlterPartitionProposal(
            topic_id=self.state.topics["t"].topic_id,
            partition=number,
            leader_epoch=part.leader_epoch,
            partition_epoch=part.partition_epoch - (self.random.random() < 0.1),
            in_sync=tuple(IsrMember(broker, BrokerEpoch(-1)) for broker in wanted),
        )
        decision, [result] = alter_partition(
            self.state,
            broker=part.leader,
            broker_epoch=self.state.brokers[part.leader].epoch,
            proposals=[change],
        )
        if result.code is ErrorCode.NONE:
            assert result.state is not None
            assert set(result.state.in_sync) == set(wanted)
        return decision

    def move(self) -> ControllerDecision:
        name = TopicPartition("t", self.random.randrange(PARTITIONS))
        target = tuple(self.random.sample(IDS, self.random.randint(1, 3)))
        wanted = None if self.random.random() < 0.3 else target
        decision, _ = alter_reassignments(self.state, [Reassignment(name, wanted)])
        return decision

    def prefer(self) -> ControllerDecision:
        names = find_imbalanced(self.state, limit_percent=self.random.choice((0, 10, 50)))
        return elect_leaders(self.state, ElectionType.PREFERRED, names)[0]

    def controlled_shutdown(self) -> ControllerDecision:
        broker = self.random.choice(list(self.state.brokers))
        return controlled_shutdown(self.state, broker, self.state.brokers[broker].epoch)[0]

    def other_controller(self) -> ControllerDecision:
        """The old controller crashed between two steps; the new one knows only the stored state."""
        doomed = self.move() if self.random.random() < 0.5 else self.brokers()
        self.tree.write(doomed, until=self.random.randint(0, len(doomed.writes)))
        epoch = ControllerEpoch(self.state.controller_epoch + 1)
        loaded = ClusterState(
            controller_id=self.state.controller_id,
            controller_epoch=epoch,
            brokers=doomed.state.brokers,
            topics={
                "t": TopicState(
                    name="t",
                    topic_id=self.state.topics["t"].topic_id,
                    partitions=self.tree.read(),
                )
            },
        )
        return fail_over(loaded, never)

    # Invariants.

    def check(self, before: tuple[PartitionState, ...], decision: ControllerDecision) -> None:
        self.tree.write(decision)
        after = decision.state.topics["t"].partitions
        assert self.tree.read() == after
        for old, new in zip(before, after, strict=True):
            check_partition(old, new, decision.state)
        check_orders(decision)


def check_partition(old: PartitionState, new: PartitionState, state: ClusterState) -> None:
    assert len(set(new.replicas)) == len(new.replicas) > 0
    assert set(new.adding) | set(new.removing) <= set(new.replicas)
    assert not set(new.adding) & set(new.removing)
    assert target_of(new)
    assert new.in_sync
    assert set(new.in_sync) <= set(new.replicas)
    assert new.leader_epoch >= old.leader_epoch
    assert new.partition_epoch >= old.partition_epoch
    if new.leader != old.leader:
        assert new.leader_epoch > old.leader_epoch
    if new.leader != NO_BROKER:
        assert new.leader in new.in_sync
        assert set(new.in_sync) <= set(state.brokers)
        assert not (is_reassigning(new) and set(target_of(new)) <= set(new.in_sync))
    else:
        assert not set(new.in_sync) & set(state.brokers)


def check_orders(decision: ControllerDecision) -> None:
    """Checks that the last request for a partition to each live broker matches the state, and that
    other brokers get none."""
    last: dict[tuple[BrokerId, int], PartitionState | None] = {}
    for broker, addressed in decision.requests:
        assert broker in decision.state.brokers
        if isinstance(addressed, LeaderAndIsrRequest):
            assert addressed.broker_epoch == decision.state.brokers[broker].epoch
            last.update({(broker, e.tp.partition): e.state for e in addressed.partitions})
        elif isinstance(addressed, StopReplicaRequest):
            last.update({(broker, partition.partition): None for partition in addressed.partitions})
    parts = decision.state.topics["t"].partitions
    for (broker, number), sent in last.items():
        if sent is None:
            assert broker not in parts[number].replicas
        else:
            assert broker in parts[number].replicas
            assert sent._replace(in_sync=()) == parts[number]._replace(in_sync=())


def merged(scenarios: list[Scenario]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for scenario in scenarios:
        for name, count in scenario.counts.items():
            total[name] = total.get(name, 0) + count
    return total


@pytest.mark.parametrize("portion", range(4))
def test_invariants_hold_over_random_events(portion: int) -> None:
    scenarios = []
    for seed in range(portion, SEEDS, 4):
        scenario = Scenario(seed)
        for _ in range(STEPS):
            scenario.step()
        scenarios.append(scenario)
    counts = merged(scenarios)
    kinds = ("brokers", "in_sync", "move", "prefer", "controlled_shutdown", "other_controller")
    assert all(counts.get(kind, 0) >= 5 for kind in kinds), counts
