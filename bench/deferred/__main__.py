"""`python -m bench.deferred [PENDING]`: prints JSON and writes bench/results/deferred.json."""

import os
import sys
import tempfile
from pathlib import Path

from bench.deferred.broker import measure
from bench.deferred.unchanged import measure_unchanged
from bench.measure import data_home, write_results

if __name__ == "__main__":
    pending = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="bench-deferred-", dir=data_home()) as folder:
        machine = {"cores": os.cpu_count(), "load_average": os.getloadavg()}
        results = {"machine": machine, **measure(pending, folder)}
        results["unchanged"] = measure_unchanged(Path(folder))
        write_results("deferred", results)
