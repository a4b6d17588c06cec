"""From nothing to the first rows: Python, JVM, session, a read of a small topic. A child of
bench.spark that does it once; its parent has the clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bench.spark.contenders import PENSTOCK, Contender, reading
from bench.spark.sessions import Figure, read_arguments, run_child, session, tell

COLD_START = "from nothing to the first rows, s"


def measure_cold_start(arguments: Mapping[str, Any], format_name: str) -> Figure:
    """Seconds until the rows are there; ending Spark does not count."""
    start = time.perf_counter()
    taken = 0.0
    for _ in run_child("cold_start", {**arguments, "format": format_name}):
        taken = time.perf_counter() - start
    name = Contender(format_name, PENSTOCK).name
    return {"metric": COLD_START, "contender": name, "value": taken}


def main() -> None:
    arguments = read_arguments()
    contender = Contender(arguments["format"], PENSTOCK)
    options = reading(arguments["servers"], contender, arguments["topic"])
    with session(arguments["home"], arguments["class_path"], with_preset=True) as spark:
        rows = spark.read.format(contender.format).options(**options).load().limit(100).collect()
        assert len(rows) == 100
        tell(COLD_START, contender.name, float(len(rows)))


if __name__ == "__main__":
    main()
