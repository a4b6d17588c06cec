"""`python -m bench.cluster`; `--try` is short and writes no results.

Prints a line per measurement and finally each ratio with its target; writes
bench/results/cluster.json and charts beside it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.kafka_jars import KAFKA_VERSION

from bench.broker.cells import Latency
from bench.broker.matrix import KAFKA, PENSTOCK
from bench.broker.nodes import require_kafka
from bench.broker.state import State
from bench.cluster.contenders import Contender, PenstockCluster
from bench.cluster.kafka_cluster import KafkaCluster
from bench.cluster.report import build_report, draw, find_targets
from bench.cluster.rounds import Plan, Rounds
from bench.measure import RESULTS, data_home, write_results

PARTITIONS = (1, 12)


def main() -> None:
    options = _parse()
    jars = require_kafka()
    plan = _make_plan(options)
    with TemporaryDirectory(dir=data_home(), prefix="bench-cluster-") as home:
        state = State(Path(home) / "samples.json", resume=False)
        contenders: dict[str, Contender] = {
            KAFKA: KafkaCluster(jars, Path(home) / KAFKA),
            PENSTOCK: PenstockCluster(Path(home) / PENSTOCK),
        }
        Rounds(plan, state, contenders).run()
    report = {
        "kafka": f"{KAFKA_VERSION}, three KRaft nodes, each broker and controller",
        "penstock": "three brokers and one ZooKeeper",
        "session_ms": {name: contender.session_ms for name, contender in contenders.items()},
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        **build_report(state, plan),
    }
    if not options.is_trial:
        write_results("cluster", report)
        draw(report, RESULTS)
    for target in find_targets(report):
        print(target.line())


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--failovers", type=int, default=6, help="each broker in turn")
    parser.add_argument(
        "--try", dest="is_trial", action="store_true", help="short; writes no results"
    )
    return parser.parse_args()


def _make_plan(options: argparse.Namespace) -> Plan:
    if options.is_trial:
        latency = Latency("all", 12, 200, 2.0)
        return Plan(partitions=PARTITIONS, records=20_000, latency=latency, rounds=1, failovers=1)
    return Plan(
        partitions=PARTITIONS,
        records=300_000,
        latency=Latency("all", 12, 1000, 8.0),
        rounds=options.rounds,
        failovers=options.failovers,
    )


if __name__ == "__main__":
    main()
