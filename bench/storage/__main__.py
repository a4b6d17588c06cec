"""`python -m bench.storage`: prints JSON and writes bench/results/storage.json.

With `--engine commitlog` it compares that engine with the segmented one instead
(bench/results/storage-commitlog.json).
"""

import sys

from bench.measure import write_results
from bench.storage import (
    appending,
    compacting,
    engine_brokers,
    engines,
    flushing,
    looking_up,
    many_partitions,
    recovering,
)

if sys.argv[1:] == ["--engine", "commitlog"]:
    write_results(
        "storage-commitlog",
        {
            "engines": [engines.measure(logs) for logs in (1, 12, 100, 1_000)]
            + [engines.measure(10_000, rounds=3)],
            "recovery": engines.measure_recovery(),
            "brokers": engine_brokers.measure(),
        },
    )
elif __name__ == "__main__":
    write_results(
        "storage",
        {
            "append": [appending.measure(size) for size in (1 << 10, 16 << 10, 256 << 10)],
            "look_up": looking_up.measure(),
            "recovery": [recovering.measure(size) for size in (1 << 10, 16 << 10)],
            "compaction": [compacting.measure(size) for size in (100, 1000)],
            "flush": [flushing.measure(logs) for logs in (1, 200)],
            "many_partitions": many_partitions.measure(),
        },
    )
