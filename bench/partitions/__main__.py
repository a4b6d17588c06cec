"""`python -m bench.partitions [COUNT]`: prints JSON and writes bench/results/partitions.json.

With `--engine commitlog` first with the segmented engine, then with the commit log engine, and with
`--kafka` then with Kafka (bench/results/partitions-commitlog.json).
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from bench.broker.nodes import require_kafka
from bench.measure import write_results
from bench.partitions.kafka_node import KafkaNode
from bench.partitions.many import compare_sizes, measure

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.partitions")
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--engine", choices=("segmented", "commitlog"), default="segmented")
    parser.add_argument("--kafka", action="store_true", help="Kafka beside both engines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        if options.engine == "segmented":
            write_results("partitions", measure(options.count, Path(folder)))
        else:
            engines = [
                measure(options.count, Path(folder) / engine, engine=engine)
                for engine in ("segmented", options.engine)
            ]
            if options.kafka:
                jars = require_kafka()
                make = partial(KafkaNode, jars)
                engines.append(
                    compare_sizes(options.count, Path(folder) / "kafka", make, name="kafka")
                )
            write_results(f"partitions-{options.engine}", {"engines": engines})
