"""Members of both protocols in any order, while the group is upgraded and downgraded.

No partition has two owners, every member gets its share once all is quiet, and a replay of the log
gives the same state.
"""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.profile import scaled
from tests.unit.coordinators.group.consumer_harness import (
    Consumer,
    ConsumerGroupHarness,
    compacted,
    durable,
    replay_log,
)
from tests.unit.coordinators.group.mixed_members import COOPERATIVE, EAGER, ClassicConsumer

from penstock.coordinators.group.classic.group import ClassicGroup
from penstock.coordinators.group.classic.state import ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.group import ConsumerGroup
from penstock.coordinators.group.consumer.partitions import Partitions, overlap, together
from penstock.coordinators.group.consumer.requests import JOIN_EPOCH
from penstock.coordinators.group.consumer.state import ConsumerState
from penstock.model.errors import ErrorCode

NEWER, CLASSIC = st.integers(0, 1), st.integers(0, 2)
DELAYS_MS = st.sampled_from([1000, 9999, 10_000, 45_000])


class Mixed(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ids = itertools.count(1)

    @initialize(assignor=st.sampled_from([COOPERATIVE, EAGER]), policy=st.just("bidirectional"))
    def begin(self, assignor: str, policy: str) -> None:
        config = GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
        self.harness = ConsumerGroupHarness(config, orders=5)
        self.newer = [Consumer(self.harness, f"newer-{next(self.ids)}") for _ in range(2)]
        self.classic = [
            ClassicConsumer(self.harness, f"classic-{number}", assignor=assignor)
            for number in range(3)
        ]

    # -- what members do -------------------------------------------------------------------

    @rule(index=NEWER)
    def newer_speaks(self, index: int) -> None:
        self._speak(self.newer[index])

    def _speak(self, who: Consumer) -> None:
        reply = who.join() if who.epoch == JOIN_EPOCH else who.beat()
        assert reply.error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)

    @rule(index=NEWER)
    def newer_leaves(self, index: int) -> None:
        who = self.newer[index]
        who.leave()
        who.epoch = JOIN_EPOCH

    @rule(index=NEWER)
    def newer_dies(self, index: int) -> None:
        self.newer[index] = Consumer(self.harness, f"newer-{next(self.ids)}")

    @rule(index=CLASSIC)
    def classic_goes_on(self, index: int) -> None:
        self.classic[index].go_on()

    @rule(index=CLASSIC)
    def classic_leaves(self, index: int) -> None:
        who = self.classic[index]
        if not who.waits and who.id in self._members():
            who.leave()

    @rule(index=CLASSIC)
    def classic_dies(self, index: int) -> None:
        who = self.classic[index]
        self.classic[index] = ClassicConsumer(self.harness, who.name, assignor=who.assignor)
        who.is_dead = True

    @rule(partitions=st.integers(5, 9))
    def topic_grows(self, partitions: int) -> None:
        view = self.harness.topics.find("orders")
        assert view is not None
        self.harness.topics.grow("orders", max(partitions, view.partitions))
        self.harness.change_topics()

    @rule(delay_ms=DELAYS_MS)
    def time_passes(self, delay_ms: int) -> None:
        self.harness.pass_time(delay_ms)

    @rule()
    def all_is_quiet(self) -> None:
        for delay_ms in (*itertools.repeat(5000, 30), *itertools.repeat(0, 10)):
            for newer in self.newer:
                self._speak(newer)
            for classic in self.classic:
                classic.go_on()
            self.harness.pass_time(delay_ms)
        assert self.harness.consumer.state is ConsumerState.STABLE
        self._check_shares([*self.newer, *self.classic])

    @rule()
    def only_classic_ones_are_left(self) -> None:
        """Their leader assigns, but does not notice that the topic was extended."""
        for who in self.newer:
            who.leave()
            who.epoch = JOIN_EPOCH
        for _ in range(40):
            for classic in self.classic:
                classic.go_on()
            self.harness.pass_time(5000)
        assert self.harness.classic.state is ClassicState.STABLE
        assert len(self.harness.classic.members) == len(self.classic)

    def _check_shares(self, everybody: list[Consumer | ClassicConsumer]) -> None:
        everything: Partitions = {}
        for who in everybody:
            everything = together(everything, who.owned)
        view = self.harness.topics.find("orders")
        assert view is not None
        assert everything == {view.topic_id: frozenset(range(view.partitions))}
        loads = [len(who.work) for who in everybody]
        assert max(loads) - min(loads) <= 1

    # -- what must hold --------------------------------------------------------------------

    def _members(self) -> frozenset[str]:
        group = self.harness.group
        if isinstance(group, ClassicGroup | ConsumerGroup):
            return frozenset(group.members)
        return frozenset()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        members = self._members()
        everybody: list[Consumer | ClassicConsumer] = [*self.newer, *self.classic]
        heard = [who for who in everybody if who.id in members]
        for one, other in itertools.combinations(heard, 2):
            assert not overlap(one.owned, other.owned), f"{one.id} and {other.id}"

    @rule(data=st.data())
    def log_gives_the_same(self, data: st.DataObject) -> None:
        log, live = self.harness.log, durable(self.harness.groups)
        index = data.draw(st.integers(0, len(log)))
        assert durable(replay_log(log)) == live
        assert durable(replay_log([*compacted(log[:index]), *log[index:]])) == live
        assert durable(replay_log(compacted(log, keep_tombstones=False))) == live

    @invariant()
    def whoever_waits_is_in_a_classic_group(self) -> None:
        if any(who.waits for who in self.classic):
            assert isinstance(self.harness.group, ClassicGroup)


TestMixed = Mixed.TestCase
TestMixed.settings = settings(
    max_examples=scaled(test=40, verify=1000, release=20_000),
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
)
