"""Ratios, targets and charts from samples; a ratio is Penstock's median over Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.broker.matrix import KAFKA, PENSTOCK
from bench.broker.report import Target, summarize
from bench.broker.state import State
from bench.cluster.rounds import FAILOVER_KEY, MEMORY_KEY, Plan, throughput_key
from bench.plot import bar_chart


def build_report(state: State, plan: Plan) -> dict[str, Any]:
    report: dict[str, Any] = {
        "ratios": "Penstock's median over Kafka's",
        "throughput": {
            str(partitions): summarize(state, throughput_key(partitions))
            for partitions in plan.partitions
        },
        "latency": plan.latency._asdict() | summarize(state, plan.latency.key),
        "memory": summarize(state, MEMORY_KEY),
        "failover": summarize(state, FAILOVER_KEY),
    }
    targets = [target._asdict() | {"met": target.is_met} for target in find_targets(report)]
    return report | {"targets": targets}


def find_targets(report: dict[str, Any]) -> Iterator[Target]:
    for partitions, metrics in report["throughput"].items():
        name = f"throughput, {partitions} partitions of 3 replicas, acks=all"
        yield Target(name, metrics["mb_s"]["ratio"], 1.0, True)
    yield Target("failover", report["failover"]["seconds"]["ratio"], 1.0, False)
    for metric in ("idle_mb", "loaded_mb"):
        name = f"memory of all processes, {metric}"
        yield Target(name, report["memory"][metric]["ratio"], 0.4, False)


def draw(report: dict[str, Any], directory: Path) -> None:
    throughput = report["throughput"]
    for metric, title, unit in (
        ("mb_s", "Producing with 3 replicas, acks=all", "MB/s"),
        ("cpu_s_per_gb", "CPU time of all processes", "s per GB"),
    ):
        groups = {
            _partitions(partitions): _bars(metrics[metric])
            for partitions, metrics in throughput.items()
        }
        bar_chart(directory / f"cluster_{metric}.svg", title, groups, unit)
    latency = {name: _bars(report["latency"][f"{name}_ms"]) for name in ("p50", "p99", "p999")}
    title = f"End-to-end latency, {report['latency']['rate']} messages per second"
    bar_chart(directory / "cluster_latency.svg", title, latency, "ms")
    memory = {name: _bars(report["memory"][f"{name}_mb"]) for name in ("idle", "loaded")}
    bar_chart(directory / "cluster_memory.svg", "Memory of all processes", memory, "MB")
    failover = {"kill -9 of the leader": _bars(report["failover"]["seconds"])}
    title = "Failover: time to the next acknowledged write"
    bar_chart(directory / "cluster_failover.svg", title, failover, "s")


def _partitions(count: str) -> str:
    return "1 partition" if count == "1" else f"{count} partitions"


def _bars(metric: dict[str, Any]) -> dict[str, float]:
    return {name: metric[name] for name in (KAFKA, PENSTOCK)}
