"""`python -m bench.storage`: prints JSON and writes bench/results/storage.json."""

from bench.measure import write_results
from bench.storage import (
    appending,
    compacting,
    flushing,
    looking_up,
    many_partitions,
    recovering,
)

if __name__ == "__main__":
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
