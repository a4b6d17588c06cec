"""`python -m bench.deferred [PENDING]`: prints JSON and writes bench/results/deferred.json."""

import sys
import tempfile

from bench.deferred.broker import measure
from bench.measure import data_home, write_results

if __name__ == "__main__":
    pending = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="bench-deferred-", dir=data_home()) as folder:
        write_results("deferred", measure(pending, folder))
