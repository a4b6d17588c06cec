"""Cold start: Python, JVM, session and a read of a small topic. A child process of bench.spark that
runs once; the parent measures the time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bench.spark.contenders import PENSTOCK, Contender, reading
from bench.spark.sessions import Figure, print_figure, read_arguments, run_child, session

COLD_START = "cold start to the first rows, s"


def measure_cold_start(arguments: Mapping[str, Any], format_name: str) -> Figure:
    """Seconds until the rows are read, without stopping Spark."""
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
        print_figure(COLD_START, contender.name, float(len(rows)))


if __name__ == "__main__":
    main()
