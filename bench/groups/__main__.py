"""`python -m bench.groups`: about ten minutes; writes bench/results/groups.json."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.interop.kafka_jars import KAFKA_VERSION

from bench.broker.nodes import require_kafka
from bench.groups.contenders import KAFKA, KAFKA_AT_ONCE, PENSTOCK, fresh_nodes
from bench.groups.first_poll import measure_first_poll
from bench.groups.leave_group import measure_leave
from bench.groups.settling import CLASSIC, CONSUMER, measure_settling
from bench.measure import data_home, write_results

FIRST_POLL_TARGET_MS = 300.0
REPEATS = 5  # repetitions of each short measurement
SETTLINGS = 3  # groups that the same members form, one after another
ALL = (KAFKA, KAFKA_AT_ONCE, PENSTOCK)
AT_ONCE = (KAFKA_AT_ONCE, PENSTOCK)

# By metric and contender: the value of each repetition.
Samples = dict[str, dict[str, list[float]]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.groups")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    jars = require_kafka()
    samples: Samples = {}
    for number in range(rounds):
        with (
            TemporaryDirectory(dir=data_home(), prefix="bench-groups-") as home,
            fresh_nodes(jars, Path(home)) as addresses,
        ):
            _measure_round(addresses, Path(home), samples, number)
    write_results("groups", _report(samples))


def _measure_round(addresses: dict[str, str], home: Path, samples: Samples, number: int) -> None:
    def turns(
        metric: str, names: tuple[str, ...], work: Callable[[str, str], list[float]], times: int = 1
    ) -> None:
        for turn in range(times):
            for name in names:
                values = work(addresses[name], f"{metric}-{number}-{turn}")
                samples.setdefault(metric, {}).setdefault(name, []).extend(values)
                figures = " ".join(f"{value:10.2f}" for value in values)
                print(f"{metric:<50} {name:<20} {figures}", file=sys.stderr, flush=True)

    def settle(protocol: str, shares: Mapping[str, int]) -> Callable[[str, str], list[float]]:
        return lambda address, _: measure_settling(
            address, home, protocol=protocol, shares=shares, times=SETTLINGS
        )

    turns("first_poll_of_the_first_group_ms", ALL, _measure_first_poll)
    turns("first_poll_of_a_new_group_ms", AT_ONCE, _measure_first_poll, REPEATS)
    turns("leave_ms", AT_ONCE, _measure_leave, REPEATS)
    turns("settle_20_members_100_partitions_s", ALL, settle("classic", CLASSIC))
    turns(
        "settle_20_members_100_partitions_newer_protocol_s", AT_ONCE, settle("consumer", CONSUMER)
    )


def _measure_first_poll(address: str, group: str) -> list[float]:
    return [measure_first_poll(address, group)]


def _measure_leave(address: str, group: str) -> list[float]:
    return [measure_leave(address, group)]


def _report(samples: Samples) -> dict[str, Any]:
    metrics = {metric: _compare(by_contender) for metric, by_contender in samples.items()}
    return {
        "kafka_version": KAFKA_VERSION,
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        "ratios": "Penstock's median over Kafka's, neither with an initial delay: below 1 is less",
        "metrics": metrics,
        "targets": [
            _target("first poll of a new group", metrics["first_poll_of_a_new_group_ms"]),
            _target("the same, of a node's first", metrics["first_poll_of_the_first_group_ms"]),
        ],
    }


def _target(name: str, metric: dict[str, Any]) -> dict[str, Any]:
    measured_ms, bound_ms = metric[PENSTOCK], FIRST_POLL_TARGET_MS
    return {"name": name, "ms": measured_ms, "bound_ms": bound_ms, "met": measured_ms < bound_ms}


def _compare(samples: dict[str, list[float]]) -> dict[str, Any]:
    medians = {name: round(statistics.median(values), 3) for name, values in samples.items()}
    ratios = {"ratio": round(medians[PENSTOCK] / medians[KAFKA_AT_ONCE], 3)}
    if KAFKA in medians:
        ratios["ratio_to_kafka_with_its_delay"] = round(medians[PENSTOCK] / medians[KAFKA], 3)
    rounds = {name: [round(value, 3) for value in values] for name, values in samples.items()}
    return {**medians, **ratios, "rounds": rounds}


if __name__ == "__main__":
    main()
