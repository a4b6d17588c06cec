"""`python -m bench.broker`: about ten minutes; `--full` for every cell, `--resume` to continue.

Prints a line per measurement and finally each ratio with its target; writes
bench/results/broker.json and charts beside it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.kafka_jars import KAFKA_VERSION

from bench.broker.cells import CORE, CORE_LATENCIES, FULL, FULL_LATENCIES
from bench.broker.matrix import KAFKA, PENSTOCK, Matrix, Plan
from bench.broker.nodes import Kafka, Penstock, Prepared, require_kafka
from bench.broker.plots import draw
from bench.broker.report import build_report, find_targets
from bench.broker.state import State
from bench.measure import RESULTS, data_home, write_results


def main() -> None:
    options = _parse()
    jars = require_kafka()
    plan = _make_plan(options)
    ours: Prepared = Kafka(jars) if options.against_itself else Penstock()
    state = State(_state_path(options), resume=options.resume)
    with TemporaryDirectory(dir=data_home(), prefix="bench-broker-") as home:
        brokers = {KAFKA: Kafka(jars), PENSTOCK: ours}
        Matrix(plan, state, brokers, jars, Path(home)).run()
    report = build_report(state, plan.cells, plan.latencies)
    # The load average includes our own load; if it far exceeds the number of cores, others used the
    # machine.
    load = {"cores": os.cpu_count(), "load_average": os.getloadavg()}
    report = {"kafka_version": KAFKA_VERSION, "machine": load} | report
    if not options.against_itself and not options.only:
        write_results("broker", report)
        draw(report, RESULTS)
    for target in find_targets(report):
        print(target.line())


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.broker")
    parser.add_argument("--full", action="store_true", help="every cell, about two hours")
    parser.add_argument("--resume", action="store_true", help="continue the last run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", default="", help="only cells whose name contains this; writes no results"
    )
    parser.add_argument(
        "--against-itself",
        action="store_true",
        help="Kafka against Kafka, to show the noise; writes no results",
    )
    return parser.parse_args()


def _make_plan(options: argparse.Namespace) -> Plan:
    cells, latencies = (FULL, FULL_LATENCIES) if options.full else (CORE, CORE_LATENCIES)
    return Plan(
        cells=[cell for cell in cells if options.only in cell.key],
        latencies=[latency for latency in latencies if options.only in latency.key],
        rounds=options.rounds,
        starts=options.rounds,
        embedded=not options.against_itself,
    )


def _state_path(options: argparse.Namespace) -> Path:
    kind = "itself" if options.against_itself else "penstock"
    return data_home() / f"bench-broker-{kind}.json"


if __name__ == "__main__":
    main()
