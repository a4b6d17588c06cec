"""One seed: a cluster that is written to while things go wrong, then left alone, then judged.

The same seed gives the same story, event by event: `Story.digest` tells.
"""

from typing import NamedTuple

from penstock.protocol.records import Record, build_batch
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.testing.simulation.faults import Faults
from penstock.testing.simulation.judge import Judge, Violation
from penstock.testing.simulation.schedule import WALL_MS
from penstock.testing.simulation.world import SESSION_MS, World

SETTLE_MS = 9 * SESSION_MS
LAST_MS = 4 * SESSION_MS


class SimulationPlan(NamedTuple):
    brokers: int = 3
    trouble_ms: int = 1500
    fault_every_ms: int = 100  # on average
    write_every_ms: int = 8


class Story(NamedTuple):
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
        """A run without these shows little."""
        return bool(self.leader_changes and self.truncations and self.shrinks)


def run_seed(seed: int, plan: SimulationPlan | None = None) -> Story:
    """Raises Violation, with the seed in its text, at the first promise that is broken."""
    try:
        return _Run(seed, plan or SimulationPlan()).run()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from violation


class _Run:
    def __init__(self, seed: int, plan: SimulationPlan) -> None:
        self._seed = seed
        self._plan = plan
        world = self._world = World(seed, brokers=plan.brokers, configs=_configs(seed))
        self._judge = world.judge = Judge(world)
        self._faults = Faults(world)
        self._written = 0
        self._is_over = False

    def run(self) -> Story:
        world, plan = self._world, self._plan
        for broker_id in world.replicas:
            self._faults.start(broker_id, SimulatedDisk("/d"))
        self._watch_sessions()
        world.schedule.run_until(3 * SESSION_MS)
        self._write()
        self._strike()
        world.schedule.run_until(3 * SESSION_MS + plan.trouble_ms)
        self._is_over = True
        self._faults.heal_all()
        world.schedule.run_until(world.schedule.now_ms + SETTLE_MS)
        self._write_once()  # which shows that somebody leads, and is followed
        world.schedule.run_until(world.schedule.now_ms + LAST_MS)
        self._judge.check_settled()
        return self._story()

    def _watch_sessions(self) -> None:
        """The tree's own clock: sessions that it has not heard of end, all in one step."""
        world = self._world
        now_ms = world.schedule.now_ms
        for session, beat_ms in list(world.beats.items()):
            if now_ms - beat_ms > SESSION_MS:
                del world.beats[session]
                world.tree.expire(session)
        world.schedule.after(10, self._watch_sessions)

    def _write(self) -> None:
        if not self._is_over:
            self._write_once()
            pause_ms = self._world.random.randint(1, 2 * self._plan.write_every_ms)
            self._world.schedule.after(pause_ms, self._write)

    def _write_once(self) -> None:
        """To the leader as some broker sees it, which may be long out of date."""
        world = self._world
        views = [each.view for each in world.brokers.values()]
        if not views:
            return
        topic = world.random.choice(views).find_topic(world.name.topic)
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
        if not self._is_over:
            pause_ms = self._world.random.randint(1, 2 * self._plan.fault_every_ms)
            self._world.schedule.after(pause_ms, self._strike_and_go_on)

    def _strike_and_go_on(self) -> None:
        if not self._is_over:
            self._faults.strike()
        self._strike()

    def _story(self) -> Story:
        judge = self._judge
        return Story(
            seed=self._seed,
            events=self._world.schedule.events,
            acknowledged=len(judge.acknowledged),
            committed=len(judge.committed),
            leader_changes=judge.leader_changes,
            truncations=judge.truncations,
            shrinks=judge.shrinks,
            faults=sum(self._faults.counts.values()),
            digest=judge.digest,
        )


def _configs(seed: int) -> dict[str, str]:
    """Every other cluster has its records on disk before they count; half ask for two replicas."""
    configs = {"segment.bytes": "1000", "min.insync.replicas": "2" if seed % 4 < 2 else "1"}
    if seed % 2:
        configs["flush.messages"] = "1"
    return configs
