"""Messages between brokers and to the metadata store: delayed, lost, or blocked by a partition.

A message is a function that runs at its receiver. Messages may overtake each other, which TCP would
not allow, so that nothing can depend on their order by accident.
"""

from random import Random

from penstock.testing.simulation.schedule import Action, Schedule

STORE = 0  # the metadata store's id among the brokers'
LOST_IN = 60  # one in so many messages, without faults
SLOW_IN = 12


class Network:
    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._cut: set[tuple[int, int]] = set()  # from, to

    def send(self, source: int, target: int, deliver: Action) -> None:
        """Calls `deliver` after a delay, unless the message is lost or the link is cut now."""
        is_lost = self._random.randrange(LOST_IN) == 0
        delay_ms = self._random.randint(1, 4)
        if self._random.randrange(SLOW_IN) == 0:
            delay_ms = self._random.randint(5, 90)
        if not is_lost and (source, target) not in self._cut:
            self._schedule.after(delay_ms, deliver)

    def is_connected(self, source: int, target: int) -> bool:
        return (source, target) not in self._cut and (target, source) not in self._cut

    def cut(self, source: int, target: int) -> None:
        self._cut.add((source, target))

    def heal(self, *links: tuple[int, int]) -> None:
        """These links, or all."""
        self._cut.difference_update(links) if links else self._cut.clear()
