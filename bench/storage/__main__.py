"""`python -m bench.storage`: prints JSON and writes bench/results/storage.json."""

from bench.measure import write_results
from bench.storage import appending, looking_up, recovering

if __name__ == "__main__":
    write_results(
        "storage",
        {
            "append": [appending.measure(size) for size in (1 << 10, 16 << 10, 256 << 10)],
            "look_up": looking_up.measure(),
            "recovery": [recovering.measure(size) for size in (1 << 10, 16 << 10)],
        },
    )
