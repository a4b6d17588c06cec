"""`python -m bench.columns`: prints JSON and writes bench/results/columns.json."""

from bench.columns import decoding, encoding, loading
from bench.measure import write_results

if __name__ == "__main__":
    write_results(
        "columns",
        {
            "decode": decoding.measure_all(),
            "encode": encoding.measure_all(),
            "partition_keys": encoding.measure_partitioning(),
            "load": loading.measure(),
        },
    )
