"""Runs one seed: writes to a cluster during faults, lets it recover, then checks it.

The same seed gives the same events; `SimulationResult.digest` shows it.
"""

from typing import NamedTuple

from penstock.protocol.records import Record, build_batch
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.testing.simulation.checker import InvariantChecker, Violation
from penstock.testing.simulation.faults import Faults
from penstock.testing.simulation.schedule import WALL_MS
from penstock.testing.simulation.world import SESSION_MS, World

SETTLE_MS = 9 * SESSION_MS
LAST_MS = 4 * SESSION_MS


class SimulationPlan(NamedTuple):
    brokers: int = 3
    trouble_ms: int = 1500
    fault_every_ms: int = 100  # on average
    write_every_ms: int = 8
    loses_data: bool = False  # all brokers are killed at once, and one has lost data


class SimulationResult(NamedTuple):
    seed: int
    events: int
    acknowledged: int
    committed: int
    leader_changes: int
    truncations: int
    shrinks: int
    faults: int
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
            seed, brokers=plan.brokers, configs=_configs(seed), loses_data=plan.loses_data
        )
        self._checker = world.checker = InvariantChecker(world)
        self._faults = Faults(world)
        self._written = 0
        self._is_ending = False

    def run(self) -> SimulationResult:
        world, plan = self._world, self._plan
        for broker_id in world.replicas:
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
        self._write_once()  # shows that there is a leader with followers
        world.schedule.run_until(world.schedule.now_ms + LAST_MS)
        self._checker.check_settled()
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
        if topic is None or topic.partitions[0].leader < 0:
            return
        self._written += 1
        number = self._written
        batch = build_batch([Record(0, WALL_MS + number, None, b"v")])
        leader = topic.partitions[0].leader
        world.schedule.after(
            world.random.randint(1, 5),
            lambda: world.deliver(leader, lambda broker: broker.on_produce(batch, number)),
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
        checker = self._checker
        return SimulationResult(
            seed=self._seed,
            events=self._world.schedule.events,
            acknowledged=len(checker.acknowledged),
            committed=len(checker.committed),
            leader_changes=checker.leader_changes,
            truncations=checker.truncations,
            shrinks=checker.shrinks,
            faults=sum(self._faults.counts.values()),
            digest=checker.digest,
        )


def _configs(seed: int) -> dict[str, str]:
    """Every other cluster flushes before it acknowledges; half need two replicas in sync."""
    configs = {"segment.bytes": "1000", "min.insync.replicas": "2" if seed % 4 < 2 else "1"}
    if seed % 2:
        configs["flush.messages"] = "1"
    return configs
