"""`python -m bench.requests`: prints JSON and writes bench/results/requests.json; some minutes.

Small produces on 64 and on 500 connections, one in flight on each, sent by a process of its own
(`generator`): requests per second, and the broker's processor time for each. Penstock runs plain
and compiled beside Kafka; all are up all the time, and their rounds alternate.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.interop.kafka_jars import KAFKA_VERSION
from tools.compile_modules import compile_modules, listed_modules

from bench.broker.nodes import Kafka, Node, Penstock, Prepared, require_kafka
from bench.measure import data_home, write_results
from bench.requests.produces import CONNECTIONS, Sample, create_topic, measure_produces

KAFKA = "kafka"
WARM_UP_S = 8.0  # until the JVM has compiled the hot code


def main() -> None:
    options = _parse()
    with TemporaryDirectory(dir=data_home(), prefix="bench-requests-") as home:
        peers = _peers(Path(home), options)
        samples = _measure(Path(home), peers, options)
    results = {
        "kafka_version": KAFKA_VERSION,
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        "produce_100_bytes": {
            f"{count}_connections": _compare(samples[count]) for count in options.connections
        },
    }
    if options.only:
        print(results)
    else:
        write_results("requests", results)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.requests")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a round")
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    parser.add_argument(
        "--only", nargs="+", help="these peers: plain, compiled, kafka; writes no results"
    )
    parser.add_argument("--compiled", type=Path, help="a compiled copy of src that there is")
    parser.add_argument(
        "--sources", type=Path, help="other plain sources as a further peer; writes no results"
    )
    return parser.parse_args()


def _peers(home: Path, options: argparse.Namespace) -> dict[str, Prepared]:
    wanted = options.only or ["plain", "compiled", KAFKA]
    peers: dict[str, Prepared] = {}
    if "plain" in wanted:
        peers["plain"] = Penstock(Path(__file__).parents[2] / "src")
    if "compiled" in wanted:
        sources = options.compiled
        if sources is None:
            sources = home / "compiled"
            compile_modules(sources, listed_modules())
        peers["compiled"] = Penstock(sources)
    if options.sources is not None:
        peers["other"] = Penstock(options.sources)
    if KAFKA in wanted:
        peers[KAFKA] = Kafka(require_kafka())
    return peers


def _measure(
    home: Path, peers: dict[str, Prepared], options: argparse.Namespace
) -> dict[int, dict[str, list[Sample]]]:
    samples: dict[int, dict[str, list[Sample]]] = {
        count: {name: [] for name in peers} for count in options.connections
    }
    with ExitStack() as stack:
        nodes: dict[str, Node] = {}
        for name, peer in peers.items():
            nodes[name] = stack.enter_context(Node(peer, home / name))
            create_topic(nodes[name])  # it listens before connections take more ports
        for node in nodes.values():
            measure_produces(node, options.connections[0], WARM_UP_S)
        for _ in range(options.rounds):
            for count in options.connections:
                for name, node in nodes.items():
                    sample = measure_produces(node, count, options.seconds)
                    samples[count][name].append(sample)
                    print(name, count, sample, file=sys.stderr, flush=True)
    return samples


def _compare(samples: dict[str, list[Sample]]) -> dict[str, Any]:
    medians = {
        name: {
            metric: round(statistics.median(sample[metric] for sample in rounds), 1)
            for metric in rounds[0]
        }
        for name, rounds in samples.items()
    }
    compared: dict[str, Any] = {"medians": medians}
    if KAFKA in medians:
        compared["ratio_to_kafka"] = {
            name: {metric: round(values[metric] / medians[KAFKA][metric], 3) for metric in values}
            for name, values in medians.items()
            if name != KAFKA
        }
    return compared | {"rounds": samples}


if __name__ == "__main__":
    try:
        main()
    except subprocess.TimeoutExpired as error:
        sys.exit(str(error))
