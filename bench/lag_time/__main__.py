"""`python -m bench.lag_time [PARTITIONS [LAG_MS ...]]`: prints JSON and writes
bench/results/lag_time.json."""

import sys

from bench.lag_time.lags import measure
from bench.measure import write_results

LAGS_MS = (30_000, 10_000, 3_000)

if __name__ == "__main__":
    partitions, *lags_ms = map(int, sys.argv[1:] or ["600"])
    write_results("lag_time", measure(partitions, lags_ms or LAGS_MS))
