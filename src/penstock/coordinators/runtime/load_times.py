"""How long shards of a coordinator take to load from their partitions, since the start."""

from typing import NamedTuple


class LoadStatistics(NamedTuple):
    loads: int = 0
    sum_s: float = 0.0
    longest_s: float = 0.0

    def plus(self, elapsed_s: float) -> "LoadStatistics":
        return LoadStatistics(
            self.loads + 1, self.sum_s + elapsed_s, max(self.longest_s, elapsed_s)
        )

    @property
    def average_s(self) -> float:
        return self.sum_s / self.loads if self.loads else 0.0
