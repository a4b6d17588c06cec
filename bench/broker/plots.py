"""Charts of a report: throughput, CPU time and latency of both brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.broker.matrix import KAFKA, PENSTOCK
from bench.plot import bar_chart

_CHARTS = (
    ("produce_mb_s", "Producing", "MB/s"),
    ("produce_cpu_s_per_gb", "Broker CPU time while producing", "s per GB"),
    ("consume_mb_s", "Consuming with librdkafka", "MB/s"),
    ("raw_fetch_mb_s", "Fetching with a bare socket", "MB/s"),
)


def draw(report: dict[str, Any], directory: Path) -> None:
    for metric, title, unit in _CHARTS:
        groups = {_name(cell): _bars(cell[metric]) for cell in report["cells"] if metric in cell}
        bar_chart(directory / f"broker_{metric}.svg", title, groups, unit)
    for latency in report["latency"]:
        groups = {name: _bars(latency[f"{name}_ms"]) for name in ("p50", "p99", "p999")}
        title = f"End-to-end latency, acks={latency['acks']}, {latency['rate']} messages per second"
        name = f"{latency['acks']}_{latency['partitions']}_{latency['rate']}"
        bar_chart(directory / f"broker_latency_{name}.svg", title, groups, "ms")


def _name(cell: dict[str, Any]) -> str:
    """A label short enough to fit below two bars."""
    client = "rd" if cell["client"] == "librdkafka" else "java"
    return f"{client} {cell['size_bytes']} {cell['acks']} {cell['codec']} {cell['partitions']}p"


def _bars(metric: dict[str, Any]) -> dict[str, float]:
    return {name: metric[name] for name in (KAFKA, PENSTOCK)}
