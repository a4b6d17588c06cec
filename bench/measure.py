"""Side-by-side timing on a noisy machine: rounds alternate; medians and best rounds are
compared."""

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def alternate(rounds: int, **works: Callable[[], None]) -> dict[str, list[float]]:
    """Seconds per round of each workload. Workloads alternate, so that noise affects all of
    them."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(peer: list[float], ours: list[float]) -> dict[str, float]:
    """Our speed relative to the peer's, by median and by best round."""
    return {
        "median": round(statistics.median(peer) / statistics.median(ours), 3),
        "best": round(min(peer) / min(ours), 3),
    }


def data_home() -> Path:
    """A folder in the repository rather than /tmp, which may be in memory."""
    home = Path(os.environ.get("BENCH_DIR", Path(__file__).parents[1] / ".cache"))
    home.mkdir(exist_ok=True)
    return home


def write_results(name: str, results: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(results, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)
