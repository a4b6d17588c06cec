"""`python -m bench.balance`: 6 brokers, 600 partitions; one broker is added, then one is removed.

Writes bench/results/balance.json. The least bytes are those that the brokers have to receive so
that counts and bytes are as even as they are at the end; `--try` is short and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Producer

from bench.balance.probe import Probe
from bench.measure import data_home, write_results
from penstock.client.admin_values import NewTopic
from penstock.testing import Cluster

TOPIC = "orders"
BROKERS = 6
REPLICAS = 2
THROTTLE = 4_000_000
QUIET_S = 20.0


def main() -> None:
    options = _parse()
    with (
        TemporaryDirectory(dir=data_home(), prefix="bench-balance-") as home,
        Cluster(BROKERS, data=home) as cluster,
    ):
        report = _measure(cluster, options)
    if options.is_trial:
        print(json.dumps(report, indent=2))
    else:
        write_results("balance", report)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.balance")
    parser.add_argument("--try", dest="is_trial", action="store_true", help="short; writes nothing")
    options = parser.parse_args()
    options.partitions = 60 if options.is_trial else 600
    options.quiet_s = 3.0 if options.is_trial else QUIET_S
    return options


def _measure(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    count = options.partitions
    holders = range(1, BROKERS)  # the last broker joins an existing cluster
    assignment = {
        number: (1 + number % len(holders), 1 + (number + 1 + number // 5 % 4) % len(holders))
        for number in range(count)
    }
    topic = NewTopic(name=TOPIC, assignment=assignment)
    cluster.ask(lambda client: client.admin.create_topics([topic], timeout_ms=120_000))
    sizes = _fill(cluster, count)
    probe = Probe(cluster.bootstrap_servers, TOPIC, count)
    time.sleep(5)
    report: dict[str, Any] = {
        "brokers": BROKERS,
        "partitions": count,
        "replicas": count * REPLICAS,
        "data_bytes": sum(sizes) * REPLICAS,
        "throttle_bytes_per_second": THROTTLE,
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
    }
    for name, arguments in (("added", ()), ("removed", ("--remove-broker", "1"))):
        probe.mark(f"before {name}")
        time.sleep(options.quiet_s)
        probe.mark(name)
        plan, result = _balance(cluster, arguments)
        probe.mark("between")
        report[name] = _describe(plan, result, probe, name)
    probe.stop()
    report["produce_errors"] = probe.failed
    return report


def _fill(cluster: Cluster, count: int) -> list[int]:
    """Partitions of different sizes, 200 KiB on average."""
    random = Random(19)
    sizes = [int(min(1 << 20, random.lognormvariate(11.9, 0.8))) for _ in range(count)]
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0}
    )
    for partition, size in enumerate(sizes):
        for _ in range(max(1, size // 4096)):
            while True:
                try:
                    producer.produce(TOPIC, random.randbytes(4096), partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
    assert producer.flush(300) == 0
    return sizes


def _balance(cluster: Cluster, arguments: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    command = [str(Path(sys.executable).parent / "penstock"), "cluster", "balance", *arguments]
    command += ["--bootstrap", cluster.bootstrap_servers, "--throttle", str(THROTTLE)]
    done = subprocess.run([*command, "--yes", "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}")
    plan, *_, result = map(json.loads, done.stdout.splitlines())
    again = subprocess.run([*command, "--dry-run", "--json"], capture_output=True, check=True)
    result["second_plan"] = len(json.loads(again.stdout)["reassignments"])
    return plan, result


def _describe(
    plan: dict[str, Any], result: dict[str, Any], probe: Probe, name: str
) -> dict[str, Any]:
    before, during = probe.series[f"before {name}"], probe.series[name]
    least = _least_bytes(plan)
    return {
        "reassignments": len(plan["reassignments"]),
        "copied_replicas": plan["replicas_to_copy"],
        "copied_bytes": plan["bytes_to_copy"],
        "least_bytes": least,
        "copied_to_least": round(plan["bytes_to_copy"] / least, 3),
        "seconds": round(result["seconds"], 1),
        "bytes_per_second": round(plan["bytes_to_copy"] / result["seconds"]),
        "second_plan_reassignments": result["second_plan"],
        "produce_ms": {"before": _summary(before), "during": _summary(during)},
        "p99_ratio": round(_quantile(during, 0.99) / _quantile(before, 0.99), 2),
    }


def _least_bytes(plan: dict[str, Any]) -> int:
    received = given = 0
    for row in plan["brokers"]:
        change = row["after"]["size_bytes"] - row["before"]["size_bytes"]
        received += max(0, change)
        given += max(0, -change)
    return max(received, given)


def _summary(milliseconds: list[float]) -> dict[str, float]:
    quantiles = {"p50": 0.5, "p99": 0.99}
    summary = {name: round(_quantile(milliseconds, share), 2) for name, share in quantiles.items()}
    return {"records": len(milliseconds), **summary}


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()
