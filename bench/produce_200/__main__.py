"""`python -m bench.produce_200`: prints JSON and writes bench/results/produce_200.json."""

from __future__ import annotations

import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.broker.nodes import Node, Penstock
from bench.measure import data_home, write_results
from bench.produce_200.floor import measure_floor
from bench.produce_200.pipelined import create_topic, measure_pipelined
from bench.produce_200.request import PARTITIONS

ROUNDS = 5
REQUESTS = 200


def measure() -> dict[str, Any]:
    rounds: dict[str, list[dict[str, float]]] = {"floor": [], "penstock": []}
    with TemporaryDirectory(dir=data_home(), prefix="bench-produce-") as home:
        _run(Path(home), rounds)
    return {"partitions": PARTITIONS, "requests": REQUESTS} | {
        metric: _compare(rounds, metric) for metric in ("wall_us", "cpu_us")
    }


def _run(home: Path, rounds: dict[str, list[dict[str, float]]]) -> None:
    with Node(Penstock(), home / "node") as node:
        wire = node.connect()
        create_topic(wire)
        measure_pipelined(node, wire, REQUESTS)  # warm-up: opens files, imports schemas
        for number in range(ROUNDS):
            rounds["floor"].append(measure_floor(home / f"floor-{number}", REQUESTS))
            rounds["penstock"].append(measure_pipelined(node, wire, REQUESTS))
        wire.close()


def _compare(rounds: dict[str, list[dict[str, float]]], metric: str) -> dict[str, Any]:
    medians = {
        name: statistics.median(sample[metric] for sample in samples)
        for name, samples in rounds.items()
    }
    return {
        **{name: round(value, 2) for name, value in medians.items()},
        "ratio_to_floor": round(medians["penstock"] / medians["floor"], 2),
    }


if __name__ == "__main__":
    write_results("produce_200", measure())
