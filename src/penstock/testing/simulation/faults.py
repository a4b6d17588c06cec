"""Faults of a simulated cluster: crashes, power cuts, pauses and network partitions.

Randomness comes from the world's seed alone. Every fault ends by itself after a while.
"""

from functools import partial

from penstock.controller.interface import Reassignment
from penstock.controller.reassignment import is_reassigning
from penstock.model.cluster import BrokerId
from penstock.testing.simulated_disk import SeededChoice, SimulatedDisk
from penstock.testing.simulation.broker import SimulatedBroker
from penstock.testing.simulation.lost_data import (
    lose_everything,
    lose_folder,
    lose_newest_segment,
)
from penstock.testing.simulation.network import STORE
from penstock.testing.simulation.world import SESSION_MS, World

Link = tuple[int, int]


class Faults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._away: dict[BrokerId, SimulatedDisk] = {}  # the surviving disks of those that are down
        self._copies: dict[BrokerId, SimulatedDisk] = {}  # disks before the latest starts
        self._damaged_in: dict[BrokerId, int] = {}  # leader epochs; until an election
        self.counts: dict[str, int] = {}
        world.on_crash = self._on_crash

    # -- brokers ---------------------------------------------------------------------------

    def start(self, broker_id: BrokerId, disk: SimulatedDisk | None = None) -> None:
        disk = disk or self._away.pop(broker_id)
        if self._world.loses_data:
            self._copies[broker_id] = disk.copy()
        broker = SimulatedBroker(self._world, broker_id, disk)
        self._world.brokers[broker_id] = broker
        broker.start()

    def start_all(self) -> None:
        for broker_id in sorted(self._away):
            self.start(broker_id)
        for broker in list(self._world.brokers.values()):
            self._resume(broker)

    def _kill(self, broker: SimulatedBroker) -> None:
        self._end(broker, broker.disk.survivor_of_kill())

    def _cut_power(self, broker: SimulatedBroker) -> None:
        choice = SeededChoice(self._random.randrange(1 << 30))
        self._end(broker, broker.disk.survivor_of_power_cut(choice))

    def _crash_soon(self, broker: SimulatedBroker) -> None:
        """Crash within an action, after some more disk operations."""
        broker.disk.crash_before(len(broker.disk.trace) + self._random.randint(0, 40))

    def _on_crash(self, broker: SimulatedBroker) -> None:
        if self._world.is_synchronous and self._random.random() < 0.5:
            self._cut_power(broker)
        else:
            self._kill(broker)

    def restart_one(self) -> None:
        """A broker that is away for longer than its session: the cluster is balanced once more,
        whatever an operator has cancelled."""
        broker = self._random.choice(list(self._world.brokers.values()))
        self._end(broker, broker.disk.survivor_of_kill(), away_ms=SESSION_MS + 50)

    def _end(
        self, broker: SimulatedBroker, left: SimulatedDisk, away_ms: int | None = None
    ) -> None:
        broker.is_over = True
        del self._world.brokers[broker.broker_id]
        self._away[broker.broker_id] = left
        delay_ms = self._random.randint(5, 3 * SESSION_MS) if away_ms is None else away_ms
        self._world.schedule.after(delay_ms, lambda: self._restart(broker.broker_id))

    def _restart(self, broker_id: BrokerId) -> None:
        if broker_id in self._away:
            self.start(broker_id)

    def _black_out(self, broker: SimulatedBroker) -> None:
        """Kill all, and damage the disk of one that has not all committed records alone. All come
        back after their sessions have expired, in any order."""
        for victim in list(self._world.brokers.values()):
            victim.is_over = True
            del self._world.brokers[victim.broker_id]
            self._away[victim.broker_id] = victim.disk.survivor_of_kill()
        self._world.schedule.after(SESSION_MS + 20, self._damage_one)

    def _damage_one(self) -> None:
        is_dark = not self._world.brokers and not self._world.store.brokers()
        victims = self._list_victims()
        if victims and is_dark:  # none has restarted meanwhile, after an earlier fault
            victim = self._random.choice(victims)
            self._away[victim] = self._damaged(victim)
            self._damaged_in[victim] = self._world.checker.stored.leader_epoch
            first = self._random.choice([victim, *self._away])
            self._restart(first)
        for broker_id in self._away:
            self._world.schedule.after(
                self._random.randint(5, 2 * SESSION_MS), partial(self._restart, broker_id)
            )

    def _list_victims(self) -> list[BrokerId]:
        """Brokers without which an in-sync replica is left that nothing has damaged. After an
        election all in-sync replicas are whole again."""
        stored = self._world.checker.stored
        if stored.leader >= 0:
            epoch = stored.leader_epoch
            self._damaged_in = {b: e for b, e in self._damaged_in.items() if e >= epoch}
        whole = set(stored.in_sync).difference(self._damaged_in)
        return [broker for broker in sorted(self._away) if whole - {broker}]

    def _damaged(self, victim: BrokerId) -> SimulatedDisk:
        kinds = [lose_folder, lose_newest_segment, lose_everything]
        kind = self._random.randrange(len(kinds) + 1)
        if kind == len(kinds):
            return self._copies[victim]
        return kinds[kind](self._away[victim], self._world.tp)

    def _pause(self, broker: SimulatedBroker) -> None:
        broker.pause()
        self._world.schedule.after(
            self._random.randint(SESSION_MS // 2, 3 * SESSION_MS), lambda: self._resume(broker)
        )

    def _resume(self, broker: SimulatedBroker) -> None:
        if broker.is_paused:
            broker.resume()

    def _reassign(self, broker: SimulatedBroker) -> None:
        """An operator asks the controller for other replicas, or cancels what is under way."""
        active = next((b.active for b in self._world.brokers.values() if b.active), None)
        if active is None or active.is_over or not active.owner.reaches_store:
            return
        tp, live = self._random.choice(self._world.tps), sorted(active.state.brokers)
        self._random.shuffle(live)
        wanted = tuple(live[: self._world.replication_factor])  # refused if there are too few
        target = None if is_reassigning(self._world.checkers[tp].stored) else wanted
        active.owner.run(lambda: active.reassign_by_hand(Reassignment(tp, target)))

    # -- links -----------------------------------------------------------------------------

    def _isolate(self, broker: SimulatedBroker) -> None:
        """Cut the broker from the metadata store and all brokers."""
        self._cut(both_ways(broker.broker_id, [STORE, *self._others(broker)]))

    def _cut_from_brokers(self, broker: SimulatedBroker) -> None:
        """Cut it from brokers but not from the metadata store: it stays leader, but no follower
        reaches it."""
        self._cut(both_ways(broker.broker_id, self._others(broker)))

    def _cut_from_store(self, broker: SimulatedBroker) -> None:
        """Cut it from the store but not from brokers: a zombie, once its session has expired."""
        self._cut(both_ways(broker.broker_id, [STORE]))

    def _cut_one_way(self, broker: SimulatedBroker) -> None:
        other = self._random.choice(self._others(broker))
        ends = [broker.broker_id, other]
        self._random.shuffle(ends)
        self._cut([(ends[0], ends[1])])

    def _others(self, broker: SimulatedBroker) -> list[BrokerId]:
        return [other for other in self._world.broker_ids if other != broker.broker_id]

    def _cut(self, links: list[Link]) -> None:
        for source, target in links:
            self._world.network.cut(source, target)
        duration_ms = self._random.randint(SESSION_MS // 3, 4 * SESSION_MS)
        self._world.schedule.after(duration_ms, lambda: self._world.network.heal(*links))

    # -- what next -------------------------------------------------------------------------

    def strike(self) -> None:
        """A random fault, mostly at the leader."""
        up = [broker for broker in self._world.brokers.values() if not broker.is_paused]
        if not up:
            return
        leader = self._world.brokers.get(self._world.checker.stored.leader)
        if leader in up and self._random.random() < 0.6:
            victim = leader
        else:
            victim = self._random.choice(up)
        kinds = [
            self._kill,
            self._crash_soon,
            self._pause,
            self._isolate,
            self._cut_from_brokers,
            self._cut_from_store,
            self._cut_one_way,
        ]
        if self._world.is_synchronous:
            kinds.append(self._cut_power)
        if self._world.loses_data:
            kinds += [self._black_out] * 3
        if self._world.is_balanced:
            kinds += [self._reassign] * 3
        kind = self._random.choice(kinds)
        self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
        kind(victim)

    def heal_all(self) -> None:
        self._world.controllers_crash = False
        self._world.network.heal()
        for broker in self._world.brokers.values():
            broker.disk.heal()
        self.start_all()


def both_ways(one: int, others: list[int] | list[BrokerId]) -> list[Link]:
    return [link for other in others for link in ((one, other), (other, one))]
