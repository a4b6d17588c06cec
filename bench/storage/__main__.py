"""`python -m bench.storage`: prints JSON and writes bench/results/storage.json.

With `--engine commitlog` it compares that engine with the segmented one instead
(bench/results/storage-commitlog.json), and with `--kafka` brokers of both with Kafka
(bench/results/storage-kafka.json); `--partitions 1 100 --rounds 1 --recovered-mib 20` is a trial.
"""

import argparse

from bench.measure import write_results
from bench.storage import (
    appending,
    compacting,
    engine_brokers,
    engines,
    flushing,
    kafka_beside,
    looking_up,
    many_partitions,
    recovering,
)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.storage")
    parser.add_argument("--engine", choices=("segmented", "commitlog"), default="segmented")
    parser.add_argument("--kafka", action="store_true", help="brokers, and Kafka beside them")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recovered-mib", type=int, default=300)
    return parser.parse_args()


options = _parse()
if options.kafka:
    write_results(
        "storage-kafka",
        kafka_beside.measure(
            options.partitions, options.rounds, recovered_bytes=options.recovered_mib << 20
        ),
    )
elif options.engine == "commitlog":
    write_results(
        "storage-commitlog",
        {
            "engines": [engines.measure(logs) for logs in (1, 12, 100, 1_000)]
            + [engines.measure(10_000, rounds=3)],
            "recovery": engines.measure_recovery(),
            "brokers": engine_brokers.measure(),
        },
    )
else:
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
