"""Ratios from samples, as Penstock's median over Kafka's, and their targets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bench.broker.cells import Cell, Latency
from bench.broker.matrix import EMBEDDED_KEY, KAFKA, MEMORY_KEY, PENSTOCK, START_KEY
from bench.broker.state import State


class Target(NamedTuple):
    name: str
    ratio: float
    bound: float
    at_least: bool  # otherwise the target is a maximum

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound

    def line(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "met" if self.is_met else "MISSED"
        return f"{self.name:<70} {self.ratio:8.3f}  target {sign} {self.bound}  {verdict}"


def summarize(state: State, key: str) -> dict[str, Any]:
    """Both medians, the ratio and all samples of each metric of this key."""
    samples = state.samples(key)
    metrics = samples[KAFKA][0].keys()
    return {metric: _compare(samples, metric) for metric in metrics}


def _compare(samples: dict[str, list[dict[str, float]]], metric: str) -> dict[str, Any]:
    values = {name: [sample[metric] for sample in samples[name]] for name in (KAFKA, PENSTOCK)}
    medians = {name: statistics.median(measured) for name, measured in values.items()}
    return {
        **{name: round(median, 4) for name, median in medians.items()},
        "ratio": round(medians[PENSTOCK] / medians[KAFKA], 3),
        "rounds": {
            name: [round(value, 4) for value in measured] for name, measured in values.items()
        },
    }


def build_report(
    state: State, cells: Sequence[Cell], latencies: Sequence[Latency]
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "ratios": "Penstock's median over Kafka's",
        "cells": [cell._asdict() | summarize(state, cell.key) for cell in cells],
        "latency": [latency._asdict() | summarize(state, latency.key) for latency in latencies],
        "memory": summarize(state, MEMORY_KEY),
        "start": summarize(state, START_KEY),
    }
    embedded = [sample["seconds"] for sample in state.samples(EMBEDDED_KEY).get(PENSTOCK, ())]
    if embedded:
        kafka = report["start"]["seconds"][KAFKA]
        median = statistics.median(embedded)
        report["embedded_start"] = {"seconds": median, "ratio": round(median / kafka, 3)}
    report["targets"] = [
        target._asdict() | {"met": target.is_met} for target in find_targets(report)
    ]
    return report


def find_targets(report: dict[str, Any]) -> Iterator[Target]:
    for cell in report["cells"]:
        name = Cell(*(cell[field] for field in Cell._fields)).key
        if cell["size_bytes"] == 1000:
            for metric in ("produce_mb_s", "consume_mb_s", "raw_fetch_mb_s"):
                if metric in cell:
                    yield Target(f"{metric} {name}", cell[metric]["ratio"], 1.0, True)
        for metric in ("produce_cpu_s_per_gb", "consume_cpu_s_per_gb", "raw_fetch_cpu_s_per_gb"):
            if metric in cell:
                yield Target(f"{metric} {name}", cell[metric]["ratio"], 1.0, False)
    for latency in report["latency"]:
        name = Latency(*(latency[field] for field in Latency._fields)).key
        yield Target(f"p99_ms {name}", latency["p99_ms"]["ratio"], 1.0, False)
    for metric in ("idle_mb", "loaded_mb"):
        yield Target(f"resident memory, {metric}", report["memory"][metric]["ratio"], 0.2, False)
    ratio = report["start"]["seconds"]["ratio"]
    yield Target("start to first acknowledged message", ratio, 0.2, False)
    if "embedded_start" in report:
        ratio = report["embedded_start"]["ratio"]
        yield Target("penstock.Broker() to first acknowledged message", ratio, 0.2, False)
