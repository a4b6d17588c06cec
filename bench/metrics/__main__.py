"""`python -m bench.metrics [PARTITIONS]`: prints JSON and writes bench/results/metrics.json."""

import sys
import tempfile
from pathlib import Path

from bench.measure import write_results
from bench.metrics.cost import measure_otlp, measure_request, measure_scrape, measure_time_lags

if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        results = {
            "request": measure_request(),
            "scrape": measure_scrape(count, Path(folder) / "scrape"),
            "time_lags": measure_time_lags(count, Path(folder) / "time_lags"),
            "otlp": measure_otlp(count, Path(folder) / "otlp"),
        }
    write_results("metrics", results)
