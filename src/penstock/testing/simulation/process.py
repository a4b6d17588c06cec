"""A broker's process from start to crash: runs actions, unless it is paused or has ended.

Knows nothing of logs or roles. The checker runs after every action.
"""

from collections.abc import Callable

from penstock.model.cluster import BrokerId
from penstock.testing.simulated_disk import SimulatedCrash
from penstock.testing.simulation.network import STORE
from penstock.testing.simulation.schedule import Action
from penstock.testing.simulation.world import World


class Process:
    def __init__(self, world: World, broker_id: BrokerId) -> None:
        self.world = world
        self.broker_id = broker_id
        self.is_over = False
        self.is_paused = False
        self._backlog: list[Action] = []  # run when a paused process resumes

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
        """Runs at whichever process is that broker when the message arrives."""
        self.world.network.send(self.broker_id, target, lambda: self.world.deliver(target, action))

    def answer(self, caller: "Process", action: Action) -> None:
        """Runs at the calling process, not at a restarted one."""
        self.world.network.send(self.broker_id, caller.broker_id, lambda: caller.run(action))

    @property
    def reaches_store(self) -> bool:
        return not self.is_paused and self.world.network.is_connected(self.broker_id, STORE)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.run(action)

    def on_crash(self) -> None:
        """The disk crashed in the middle of an action."""
        raise NotImplementedError

    def on_acted(self) -> None:
        raise NotImplementedError
