"""Messages between brokers, and between them and the tree: late, lost, or not sent at all.

A message is a function that acts at its receiver. Two of them may overtake each other, more than
TCP would allow: what must not depend on order, here cannot.
"""

from random import Random

from penstock.testing.simulation.schedule import Action, Schedule

TREE = 0  # its place beside the brokers' ids
LOST_IN = 60  # one of so many messages, while all is well
SLOW_IN = 12


class Network:
    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._cut: set[tuple[int, int]] = set()  # from, to

    def send(self, source: int, target: int, deliver: Action) -> None:
        """`deliver` later, if nothing is in the way now."""
        is_lost = self._random.randrange(LOST_IN) == 0
        delay_ms = self._random.randint(1, 4)
        if self._random.randrange(SLOW_IN) == 0:
            delay_ms = self._random.randint(5, 90)
        if not is_lost and (source, target) not in self._cut:
            self._schedule.after(delay_ms, deliver)

    def is_open(self, source: int, target: int) -> bool:
        return (source, target) not in self._cut and (target, source) not in self._cut

    def cut(self, source: int, target: int) -> None:
        self._cut.add((source, target))

    def heal(self, *links: tuple[int, int]) -> None:
        """These links, or all."""
        self._cut.difference_update(links) if links else self._cut.clear()
