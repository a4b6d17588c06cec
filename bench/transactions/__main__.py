"""`python -m bench.transactions`: about six minutes; `--try` is short and writes no results.

Prints a line per measurement; writes bench/results/transactions.json. Both brokers run side by
side, each measurement alternates between them, and the first broker alternates between rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.clients.java_clients import JavaClients
from tests.interop.kafka_jars import KAFKA_VERSION, KafkaUnavailableError, resolve_kafka_jars

from bench.broker.matrix import KAFKA, PENSTOCK, calm_down, create
from bench.broker.nodes import Kafka, Node, Penstock, Prepared
from bench.broker.processes import cpu_seconds
from bench.broker.report import summarize
from bench.broker.starting import send_first
from bench.broker.state import Sample, State
from bench.measure import data_home, write_results
from bench.transactions.clients import JAVA_VERSION, Load, make_loads, resolve_java, run_load


def main() -> None:
    options = _parse()
    try:
        jars = resolve_kafka_jars(lambda text: print(text, file=sys.stderr, flush=True))
        java = resolve_java()
    except KafkaUnavailableError as error:
        sys.exit(f"this benchmark needs Kafka: {error}")
    brokers: dict[str, Prepared] = {KAFKA: Kafka(jars), PENSTOCK: Penstock()}
    loads = make_loads(1.0 if options.is_trial else 6.0)
    with TemporaryDirectory(dir=data_home(), prefix="bench-transactions-") as home:
        state = State(Path(home) / "samples.json", resume=False)
        with ExitStack() as stack:
            nodes = {
                name: stack.enter_context(Node(broker, Path(home) / name))
                for name, broker in brokers.items()
            }
            _warm_up(nodes, java, loads)
            for number in range(1 if options.is_trial else options.rounds):
                _round(number, nodes, java, loads, state)
    report = _build_report(state, loads)
    if options.is_trial:
        print(report)
    else:
        write_results("transactions", report)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.transactions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--try", dest="is_trial", action="store_true", help="a second of each; writes no results"
    )
    return parser.parse_args()


def _warm_up(nodes: Mapping[str, Node], java: JavaClients, loads: list[Load]) -> None:
    """Runs a whole round that is not counted: after a warm-up of a second per load, Kafka's first
    round still had a quarter of the speed of its second."""
    for node in nodes.values():
        wire = node.connect()
        send_first(wire)
        wire.close()
        for number, load in enumerate(loads):
            _measure(load, node, java, f"warm-up-{number}")


def _round(
    number: int, nodes: Mapping[str, Node], java: JavaClients, loads: list[Load], state: State
) -> None:
    for index, load in enumerate(loads):
        for name in list(nodes) if number % 2 == 0 else list(nodes)[::-1]:
            calm_down(nodes)
            sample = _measure(load, nodes[name], java, f"round-{number}-{index}")
            state.add(load.key, name, sample)
            figures = ", ".join(f"{metric} {value:.4g}" for metric, value in sample.items())
            print(f"round {number + 1}  {load.key}  {name}: {figures}", flush=True)


def _measure(load: Load, node: Node, java: JavaClients, topic: str) -> Sample:
    wire = node.connect()
    create(wire, topic, load.partitions)
    before = cpu_seconds(node.pid)
    result = run_load(load, java, node.bootstrap, topic)
    spent_s = cpu_seconds(node.pid) - before
    wire.delete_topic(topic)
    wire.close()
    megabytes = result["records"] * load.size_bytes / 1e6
    return {
        "transactions_per_s": result["transactions"] / result["seconds"],
        "mb_s": megabytes / result["seconds"],
        "cpu_ms_per_transaction": 1000 * spent_s / result["transactions"],
        "cpu_s_per_gb": 1000 * spent_s / megabytes,
    }


def _build_report(state: State, loads: list[Load]) -> dict[str, Any]:
    return {
        "kafka_version": KAFKA_VERSION,
        "clients": f"librdkafka (transactions v1), Java {JAVA_VERSION} (transactions v2)",
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        "ratios": "Penstock's median over Kafka's",
        "loads": {load.key: load._asdict() | summarize(state, load.key) for load in loads},
    }


if __name__ == "__main__":
    main()
