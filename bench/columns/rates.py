"""Ways to do the same, taking turns: million rows a second of each, and ratios to the slower ones.

CPU time of this process counts: nothing here waits, so what else the machine does must not matter.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.measure import ratio

ROUNDS = 11


class Way(NamedTuple):
    rows: int
    work: Callable[[], object]


def compare(ours: str, **ways: Way) -> dict[str, Any]:
    """The way named `ours` against each other one; slower ways may do fewer rows."""
    per_row: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.process_time()
            way.work()
            per_row[name].append((time.process_time() - start) / way.rows)
    return {
        "million_rows_per_second": {
            name: round(1e-6 / statistics.median(each), 3) for name, each in per_row.items()
        },
        "ratio_to": {
            name: ratio(each, per_row[ours]) for name, each in per_row.items() if name != ours
        },
    }
