"""`python -m bench.requests`: prints JSON and writes bench/results/requests.json; some minutes.

Small produces on 64 and on 500 connections, one in flight on each, sent by a process of its own
(`generator`): requests per second, and the broker's processor time for each. Then one request after
another with its reply over two topics. Penstock runs plain and compiled beside Kafka; all are up
all the time, and their rounds alternate.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.interop.kafka_jars import KAFKA_VERSION
from tools.compile_modules import compile_modules, listed_modules

from bench.broker.nodes import Kafka, Node, Penstock, Prepared, require_kafka
from bench.measure import RESULTS, data_home, write_results
from bench.plot import bar_chart
from bench.requests.produces import CONNECTIONS, Sample, create_topic, measure_produces
from bench.requests.round_trips import create_topics, measure_round_trips

KAFKA = "kafka"
WARM_UP_S = 8.0  # until the JVM has compiled the hot code


def main() -> None:
    options = _parse()
    with TemporaryDirectory(dir=data_home(), prefix="bench-requests-") as home:
        peers = _peers(Path(home), options)
        samples = _measure(Path(home), peers, options)
    results = {
        "kafka_version": KAFKA_VERSION,
        # Others used the machine where the load is far above the number of cores.
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        "seconds": options.seconds,
        **{workload: _compare(of_peers) for workload, of_peers in samples.items()},
    }
    if options.only or options.sources:
        print(results)
    else:
        write_results("requests", results)
        _draw(samples)


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
        peers["plain"] = Penstock(sources=Path(__file__).parents[2] / "src")
    if "compiled" in wanted:
        sources = options.compiled
        if sources is None:
            sources = home / "compiled"
            compile_modules(sources, listed_modules())
        peers["compiled"] = Penstock(sources=sources)
    if options.sources is not None:
        peers["other"] = Penstock(sources=options.sources)
    if KAFKA in wanted:
        peers[KAFKA] = Kafka(require_kafka())
    return peers


def _measure(
    home: Path, peers: dict[str, Prepared], options: argparse.Namespace
) -> dict[str, dict[str, list[Sample]]]:
    """By workload and peer, the samples of all rounds."""
    works: dict[str, Callable[[Node], Sample]] = {
        f"produce_{count}_connections": partial(
            measure_produces, connections=count, seconds=options.seconds
        )
        for count in options.connections
    }
    works["request_and_reply"] = partial(measure_round_trips, seconds=options.seconds)
    samples: dict[str, dict[str, list[Sample]]] = {
        workload: {name: [] for name in peers} for workload in works
    }
    with ExitStack() as stack:
        nodes: dict[str, Node] = {}
        for name, peer in peers.items():
            nodes[name] = stack.enter_context(Node(peer, home / name))
            create_topic(nodes[name])  # it listens before connections take more ports
            create_topics(nodes[name])
        for node in nodes.values():
            measure_produces(node, options.connections[0], WARM_UP_S)
            measure_round_trips(node, WARM_UP_S / 4)
        for _ in range(options.rounds):
            for workload, work in works.items():
                for name, node in nodes.items():
                    sample = work(node)
                    samples[workload][name].append(sample)
                    print(name, workload, sample, file=sys.stderr, flush=True)
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


def _draw(samples: dict[str, dict[str, list[Sample]]]) -> None:
    """A chart of requests, and one of the processor time for each."""
    for metric, unit in (("requests_per_s", "1/s"), ("cpu_us_per_request", "us")):
        groups = {
            workload.removeprefix("produce_").replace("_", " "): {
                name: statistics.median(sample[metric] for sample in rounds)
                for name, rounds in of_peers.items()
            }
            for workload, of_peers in samples.items()
            if workload.startswith("produce")
        }
        title = f"100-byte produces, one in flight: {metric.replace('_', ' ')}"
        bar_chart(RESULTS / f"requests_{metric}.svg", title, groups, unit)


if __name__ == "__main__":
    main()
