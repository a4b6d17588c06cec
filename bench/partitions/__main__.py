"""`python -m bench.partitions [COUNT]`: prints JSON and writes bench/results/partitions.json."""

import sys
import tempfile
from pathlib import Path

from bench.measure import write_results
from bench.partitions.many import measure

if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        write_results("partitions", measure(count, Path(folder)))
