"""One life of a broker's process: it acts when told, unless it is paused, or over.

Knows nothing of logs or roles. Whatever it does, the judge looks at right afterwards.
"""

from collections.abc import Callable

from penstock.model.cluster import BrokerId
from penstock.testing.simulated_disk import SimulatedCrash
from penstock.testing.simulation.network import TREE
from penstock.testing.simulation.schedule import Action
from penstock.testing.simulation.world import World


class Process:
    def __init__(self, world: World, broker_id: BrokerId) -> None:
        self.world = world
        self.broker_id = broker_id
        self.is_over = False
        self.is_paused = False
        self._backlog: list[Action] = []  # what a paused process finds when it goes on

    def run(self, action: Action) -> None:
        if self.is_over:
            return
        if self.is_paused:
            self._backlog.append(action)
            return
        try:
            action()
        except SimulatedCrash:
            self.on_crash()
        else:
            self.on_acted()

    def later(self, delay_ms: int, action: Action) -> None:
        self.world.schedule.after(delay_ms, lambda: self.run(action))

    def send(self, target: BrokerId, action: Callable[["Process"], None]) -> None:
        """To be done by whoever is that broker when the message arrives."""
        self.world.network.send(self.broker_id, target, lambda: self.world.deliver(target, action))

    def answer(self, asker: "Process", action: Action) -> None:
        """To be done by the one that asked, and no other life of it."""
        self.world.network.send(self.broker_id, asker.broker_id, lambda: asker.run(action))

    @property
    def sees_tree(self) -> bool:
        return not self.is_paused and self.world.network.is_open(self.broker_id, TREE)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.run(action)

    def on_crash(self) -> None:
        """The disk ended it in the middle of what it did."""
        raise NotImplementedError

    def on_acted(self) -> None:
        raise NotImplementedError
