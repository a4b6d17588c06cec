"""`python -m bench.partitions [COUNT]`: prints JSON and writes bench/results/partitions.json.

With `--engine commitlog` both brokers use that engine (bench/results/partitions-commitlog.json).
"""

import argparse
import tempfile
from pathlib import Path

from bench.measure import write_results
from bench.partitions.many import measure

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.partitions")
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--engine", choices=("segmented", "commitlog"), default="segmented")
    options = parser.parse_args()
    name = "partitions" if options.engine == "segmented" else f"partitions-{options.engine}"
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        write_results(name, measure(options.count, Path(folder), engine=options.engine))
