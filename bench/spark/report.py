"""Medians, ratios and targets from figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.broker.report import Target
from bench.spark.cold_start import COLD_START
from bench.spark.contenders import JVM, KAFKA, OURS, OWN, PEER, Contender
from bench.spark.jobs import JOBS
from bench.spark.micro_batches import MICRO_BATCH, contender_name
from bench.spark.steady_stream import AT_LEAST_ONCE, EXACTLY_ONCE, PERIOD, PHASES, STEADY, THEIRS
from bench.spark.throughput import (
    COPY,
    NOOP,
    PARQUET,
    SINK,
    SINK_HEADERS,
    SINK_ONCE,
    STREAM,
)

Figures = Mapping[str, Mapping[str, Sequence[float]]]  # by metric and contender

# Minimum ratio to the JVM connector's rows per second, on the same broker.
_AT_LEAST = {NOOP: 3.0, PARQUET: 1.5, SINK: 1.0, SINK_HEADERS: 1.5, SINK_ONCE: 1.0}
_PRESET_AT_MOST = 0.7
# Maximum ratio to the JVM connector's time for a micro-batch of a steady stream.
_STEADY_AT_MOST = {AT_LEAST_ONCE: 1.0, EXACTLY_ONCE: 1.3}
RATES = (NOOP, STREAM, PARQUET, SINK, SINK_HEADERS, SINK_ONCE, COPY)


def summarize(figures: Figures) -> dict[str, Any]:
    return {
        metric: {
            "medians": _medians(values),
            "ratios": dict(_ratios(metric, _medians(values))),
            "rounds": {
                name: [round(value, 3) for value in rounds] for name, rounds in values.items()
            },
        }
        for metric, values in figures.items()
    }


def find_targets(metrics: Mapping[str, Any]) -> Iterator[Target]:
    for metric, bound in _AT_LEAST.items():
        if metric in metrics:
            yield Target(metric, metrics[metric]["ratios"]["on Penstock"], bound, True)
    if MICRO_BATCH in metrics:
        ratio = metrics[MICRO_BATCH]["ratios"]["preset to default"]
        yield Target("micro-batch, preset to Spark's default", ratio, _PRESET_AT_MOST, False)
    if STEADY in metrics:
        for name, bound in _STEADY_AT_MOST.items():
            ratio = metrics[STEADY]["ratios"][name]
            yield Target(f"micro-batch of a steady stream, {name}", ratio, bound, False)


def _medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(statistics.median(rounds), 3) for name, rounds in values.items()}


def _ratios(metric: str, medians: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Our connector relative to the JVM connector: higher is better for rates, lower for times."""
    if metric == MICRO_BATCH:
        yield from _preset_ratios(medians)
    elif metric in (STEADY, PERIOD):
        for name in _STEADY_AT_MOST:
            yield name, round(medians[name] / medians[THEIRS], 3)
    elif metric.startswith(PHASES):
        return
    elif metric == JOBS:
        yield "replay to replay --where", round(medians["replay"] / medians["replay --where"], 3)
    elif metric == COLD_START:
        yield "on Penstock", round(medians[OWN] / medians[PEER], 3)
    else:
        theirs, ours = (medians[Contender(name, KAFKA).name] for name in (JVM, OURS))
        yield "on Penstock", round(medians[OWN] / medians[PEER], 3)
        yield "on Kafka", round(ours / theirs, 3)
        yield "ours on Penstock to JVM on Kafka", round(medians[OWN] / theirs, 3)


def _preset_ratios(medians: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for connector, name in (
        (OURS, "preset to default"),
        (JVM, "preset to default, JVM connector"),
    ):
        with_preset, without = (
            medians[contender_name(connector, with_preset=has)] for has in (True, False)
        )
        yield name, round(with_preset / without, 3)
