"""Runs one seed: writes to a cluster during faults, lets it recover, then checks it.

The same seed gives the same events; `SimulationResult.digest` shows it.
"""

from functools import reduce
from operator import xor
from typing import NamedTuple

from penstock.protocol.records import Record, build_batch
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.testing.simulation.balancing import check_balanced
from penstock.testing.simulation.checker import InvariantChecker, Violation
from penstock.testing.simulation.faults import Faults
from penstock.testing.simulation.schedule import WALL_MS
from penstock.testing.simulation.world import SESSION_MS, World

SETTLE_MS = 9 * SESSION_MS
LAST_MS = 4 * SESSION_MS
BALANCE_MS = 20 * SESSION_MS


class SimulationPlan(NamedTuple):
    brokers: int = 3
    trouble_ms: int = 1500
    fault_every_ms: int = 100  # on average
    write_every_ms: int = 8
    loses_data: bool = False  # all brokers are killed at once, and one has lost data
    partitions: int = 1
    replicas: int | None = None  # of a partition; None: on all brokers
    is_balanced: bool = False  # the controller balances by itself, and operators reassign


BALANCED = SimulationPlan(brokers=5, partitions=4, replicas=3, is_balanced=True)
"""Three brokers with all replicas, and two that have just joined."""


class SimulationResult(NamedTuple):
    seed: int
    events: int
    acknowledged: int
    committed: int
    leader_changes: int
    truncations: int
    shrinks: int
    faults: int
    reassignments: int  # finished
    undone: int  # cancelled by the controller, because the broker had returned
    digest: int

    @property
    def is_eventful(self) -> bool:
        """A run without these tests little."""
        return bool(self.leader_changes and self.truncations and self.shrinks)


def run_seed(seed: int, plan: SimulationPlan | None = None) -> SimulationResult:
    """Raises Violation, with the seed in its message, at the first violated invariant."""
    try:
        return _Run(seed, plan or SimulationPlan()).run()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from violation


class _Run:
    def __init__(self, seed: int, plan: SimulationPlan) -> None:
        self._seed = seed
        self._plan = plan
        world = self._world = World(
            seed,
            brokers=plan.brokers,
            configs=_configs(seed),
            partitions=plan.partitions,
            replicas=plan.replicas,
            loses_data=plan.loses_data,
            is_balanced=plan.is_balanced,
        )
        world.checkers = {tp: InvariantChecker(world, tp) for tp in world.tps}
        self._faults = Faults(world)
        self._written = 0
        self._is_ending = False

    def run(self) -> SimulationResult:
        world, plan = self._world, self._plan
        for broker_id in world.broker_ids:
            self._faults.start(broker_id, SimulatedDisk("/d"))
        self._watch_sessions()
        world.schedule.run_until(3 * SESSION_MS)
        self._write()
        self._strike()
        world.schedule.run_until(3 * SESSION_MS + plan.trouble_ms)
        self._is_ending = True
        self._faults.heal_all()
        world.schedule.run_until(world.schedule.now_ms + SETTLE_MS)
        if plan.loses_data and self._elect_as_operator():
            world.schedule.run_until(world.schedule.now_ms + SETTLE_MS)
        if plan.is_balanced:
            self._faults.restart_one()
            world.schedule.run_until(world.schedule.now_ms + BALANCE_MS)
        for _ in world.tps:
            self._write_once()  # shows that there is a leader with followers
        world.schedule.run_until(world.schedule.now_ms + LAST_MS)
        for checker in world.checkers.values():
            checker.check_settled()
        if plan.is_balanced:
            check_balanced(world)
        return self._result()

    def _elect_as_operator(self) -> bool:
        """Whether it was asked for: no member of the ISR has a log any more, because one lost its
        disk and the others a log that was too young to be on theirs."""
        for broker in self._world.brokers.values():
            active = broker.active
            if active is not None and not active.is_over and active.waits_for_operator():
                active.elect_unclean()
                return True
        return False

    def _watch_sessions(self) -> None:
        """The metadata store's own clock: expires sessions without heartbeats."""
        world = self._world
        now_ms = world.schedule.now_ms
        for session, beat_ms in list(world.heartbeats.items()):
            if now_ms - beat_ms > SESSION_MS:
                del world.heartbeats[session]
                world.store.expire(session)
        world.schedule.after(10, self._watch_sessions)

    def _write(self) -> None:
        if not self._is_ending:
            self._write_once()
            pause_ms = self._world.random.randint(1, 2 * self._plan.write_every_ms)
            self._world.schedule.after(pause_ms, self._write)

    def _write_once(self) -> None:
        """Write to the leader in some broker's metadata, which may be long out of date."""
        world = self._world
        caches = [broker.metadata for broker in world.brokers.values()]
        if not caches:
            return
        topic = world.random.choice(caches).find_topic(world.tp.topic)
        tp = world.tps[(self._written + 1) % len(world.tps)]
        if topic is None or topic.partitions[tp.partition].leader < 0:
            return
        self._written += 1
        number = self._written
        batch = build_batch([Record(0, WALL_MS + number, None, b"v")])
        leader = topic.partitions[tp.partition].leader
        world.schedule.after(
            world.random.randint(1, 5),
            lambda: world.deliver(leader, lambda broker: broker.on_produce(tp, batch, number)),
        )

    def _strike(self) -> None:
        if not self._is_ending:
            pause_ms = self._world.random.randint(1, 2 * self._plan.fault_every_ms)
            self._world.schedule.after(pause_ms, self._strike_and_continue)

    def _strike_and_continue(self) -> None:
        if not self._is_ending:
            self._faults.strike()
        self._strike()

    def _result(self) -> SimulationResult:
        checkers = self._world.checkers.values()
        return SimulationResult(
            seed=self._seed,
            events=self._world.schedule.events,
            acknowledged=sum(len(checker.acknowledged) for checker in checkers),
            committed=sum(len(checker.committed) for checker in checkers),
            leader_changes=sum(checker.leader_changes for checker in checkers),
            truncations=sum(checker.truncations for checker in checkers),
            shrinks=sum(checker.shrinks for checker in checkers),
            faults=sum(self._faults.counts.values()),
            reassignments=sum(checker.reassignments for checker in checkers),
            undone=self._world.undone,
            digest=reduce(xor, (checker.digest for checker in checkers)),
        )


def _configs(seed: int) -> dict[str, str]:
    """Every other cluster flushes before it acknowledges; half need two replicas in sync."""
    configs = {"segment.bytes": "1000", "min.insync.replicas": "2" if seed % 4 < 2 else "1"}
    if seed % 2:
        configs["flush.messages"] = "1"
    return configs
