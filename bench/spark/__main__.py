"""`python -m bench.spark`: about seven minutes; prints each figure, then the targets.

Writes bench/results/spark.json and charts beside it. `--only` runs one part and writes
bench/results/spark-PART.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyspark
from tests.interop.kafka_jars import KAFKA_VERSION, KafkaUnavailableError, resolve_kafka_jars
from tests.spark.jvm_connector import CONNECTOR_VERSION, class_path, resolve_jvm_connector

from bench.broker.nodes import Kafka, Node, Penstock, Prepared
from bench.measure import RESULTS, data_home, write_results
from bench.plot import bar_chart
from bench.spark.cold_start import measure_cold_start
from bench.spark.contenders import JVM, KAFKA, OURS, PENSTOCK
from bench.spark.jobs import JOBS
from bench.spark.report import RATES, find_targets, summarize
from bench.spark.sessions import Figure, run_child
from bench.spark.steady_stream import PERIOD, PHASES
from bench.spark.topics import fill

MANY, SOME, FEW = "many", "some", "few"
PARTS = ("throughput", "micro_batches", "steady_stream", "cold_start", "jobs")


def main() -> None:
    options = _parse()
    try:
        jars, connector = resolve_kafka_jars(_say), resolve_jvm_connector(_say)
    except KafkaUnavailableError as error:
        sys.exit(f"this benchmark needs Kafka and Spark's connector: {error}")
    with TemporaryDirectory(dir=data_home(), prefix="bench-spark-") as home, ExitStack() as stack:
        brokers: dict[str, Prepared] = {PENSTOCK: Penstock(), KAFKA: Kafka(jars)}
        nodes = {
            name: stack.enter_context(Node(broker, Path(home) / f"{name}-data"))
            for name, broker in brokers.items()
        }
        for node in nodes.values():
            fill(node, {MANY: options.rows, SOME: options.rows // 3, FEW: 20_000})
        shared = {
            "servers": {name: node.bootstrap for name, node in nodes.items()},
            "class_path": class_path(connector),
            "home": f"{home}/spark",
        }
        metrics = summarize(_collect(_figures(options, shared)))
    _finish(metrics, options)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=3_000_000, help="records of the longest topic")
    parser.add_argument("--batches", type=int, default=40, help="micro-batches per session")
    parser.add_argument("--only", choices=PARTS, help="one part, results apart")
    return parser.parse_args()


def _figures(options: argparse.Namespace, shared: dict[str, Any]) -> Iterator[Figure]:
    parts = [options.only] if options.only else PARTS
    if "throughput" in parts:
        topics = {MANY: (MANY, options.rows), SOME: (SOME, options.rows // 3)}
        yield from run_child("throughput", {**shared, **topics, "rounds": options.rounds})
    if "jobs" in parts:
        some = {SOME: (SOME, options.rows // 3)}
        yield from run_child("jobs", {**shared, **some, "rounds": options.rounds})
    small = {**shared, "topic": FEW, "batches": options.batches}
    if "micro_batches" in parts:
        for _ in range(max(options.rounds - 1, 1)):
            for with_preset in (False, True):
                yield from run_child("micro_batches", {**small, "with_preset": with_preset})
    if "steady_stream" in parts:
        yield from run_child("steady_stream", {**small, "rounds": options.rounds})
    if "cold_start" in parts:
        for _ in range(max(options.rounds - 1, 1)):
            for name in (JVM, OURS):
                # Ours needs no jars, which is part of the comparison.
                jars = shared["class_path"] if name == JVM else ""
                yield measure_cold_start({**small, "class_path": jars}, name)


def _collect(figures: Iterable[Figure]) -> dict[str, dict[str, list[float]]]:
    collected: dict[str, dict[str, list[float]]] = {}
    for figure in figures:
        metric, contender, value = figure["metric"], figure["contender"], figure["value"]
        collected.setdefault(metric, {}).setdefault(contender, []).append(value)
        _say(f"{metric:<42} {contender:<46} {value:14,.1f}")
    return collected


def _finish(metrics: dict[str, Any], options: argparse.Namespace) -> None:
    targets = list(find_targets(metrics))
    report = {
        "versions": {
            "spark": pyspark.__version__,
            "jvm_connector": CONNECTOR_VERSION,
            "kafka": KAFKA_VERSION,
        },
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        "rows": options.rows,
        "metrics": metrics,
        "targets": [target._asdict() | {"met": target.is_met} for target in targets],
    }
    if options.only:
        write_results(f"spark-{options.only}", report)
    else:
        write_results("spark", report)
        _draw(metrics)
    for target in targets:
        print(target.line())


def _draw(metrics: dict[str, Any]) -> None:
    groups = {
        metric.split(",")[0]: {
            name: round(rate / 1e6, 3) for name, rate in metrics[metric]["medians"].items()
        }
        for metric in RATES
    }
    bar_chart(
        RESULTS / "spark_rates.svg",
        "Spark connector throughput, 100-byte values",
        groups,
        "M rows/s",
    )
    times = {
        name: metric["medians"]
        for name, metric in metrics.items()
        if name not in (*RATES, JOBS, PERIOD) and not name.startswith(PHASES)
    }
    for number, (name, medians) in enumerate(times.items()):
        title, _, unit = name.rpartition(", ")
        path = RESULTS / f"spark_times_{number}.svg"
        bar_chart(path, title.capitalize(), {title: medians}, unit)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
