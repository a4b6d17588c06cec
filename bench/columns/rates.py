"""Compares alternating implementations: million rows per second, and ratios to the slower ones.

Measures CPU time of this process: nothing here waits, so other load must not count.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.measure import ratio

ROUNDS = 11


class Implementation(NamedTuple):
    rows: int
    work: Callable[[], object]


def compare(ours: str, **implementations: Implementation) -> dict[str, Any]:
    """Compares the implementation named `ours` with the others; slower ones may process fewer
    rows."""
    per_row: dict[str, list[float]] = {name: [] for name in implementations}
    for _ in range(ROUNDS):
        for name, implementation in implementations.items():
            start = time.process_time()
            implementation.work()
            per_row[name].append((time.process_time() - start) / implementation.rows)
    return {
        "million_rows_per_second": {
            name: round(1e-6 / statistics.median(seconds), 3) for name, seconds in per_row.items()
        },
        "ratio_to": {
            name: ratio(seconds, per_row[ours]) for name, seconds in per_row.items() if name != ours
        },
    }
