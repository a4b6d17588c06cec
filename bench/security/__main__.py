"""`python -m bench.security [--rounds N] [--records N]`: about ten minutes; prints JSON and writes
bench/results/security.json.

One broker of each kind runs with a PLAINTEXT and an SSL listener. Every round produces and consumes
the same records through all four listeners, one after the other, and shakes hands at the two with
TLS. Counted are the client's seconds and the broker's processor time. The first round warms up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.interop.kafka_jars import KAFKA_VERSION

from bench.broker.nodes import Node, require_kafka
from bench.measure import data_home, write_results
from bench.security.brokers import Secured, SecuredKafka, SecuredPenstock, processor_s
from penstock.testing.certificates import CertificateAuthority

PARTITIONS = 4
SIZE_BYTES = 1000
CLIENT_TIMEOUT_S = 900
KAFKA, PENSTOCK = "kafka", "penstock"
MIN_SPEED, MAX_PROCESSOR = 1.0, 0.8  # of Kafka's with TLS: throughput, processor time per GB


class Measured(NamedTuple):
    seconds: float
    processor_s: float


Results = dict[tuple[str, str, str], list[Measured]]  # work, broker, protocol


def main() -> None:
    options = _parse()
    results: Results = {}
    with (
        TemporaryDirectory(dir=data_home(), prefix="bench-security-") as home,
        ExitStack() as stack,
    ):
        folder = Path(home)
        certificate = CertificateAuthority().issue("broker").write(folder / "keys")
        brokers: dict[str, tuple[Node, Secured]] = {}
        for name, broker in (
            (KAFKA, SecuredKafka(require_kafka(), certificate)),
            (PENSTOCK, SecuredPenstock(certificate)),
        ):
            node = stack.enter_context(Node(broker, folder / name))
            node.connect().close()
            brokers[name] = (node, broker)
        for number in range(-1, options.rounds):
            measured = _run_round(brokers, number, options, str(certificate.authority))
            if number >= 0:
                for key, value in measured.items():
                    results.setdefault(key, []).append(value)
    report = _report(results, options)
    write_results("security", report) if options.write else print(json.dumps(report, indent=2))
    for line in _targets(report):
        print(line)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.security")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=500_000, help="of 1000 bytes, each time")
    parser.add_argument("--handshakes", type=int, default=2_000)
    parser.add_argument("--no-write", dest="write", action="store_false", help="print only")
    return parser.parse_args()


def _run_round(
    brokers: dict[str, tuple[Node, Secured]],
    number: int,
    options: argparse.Namespace,
    authority: str,
) -> dict[tuple[str, str, str], Measured]:
    measured = {}
    for protocol in ("plaintext", "tls"):
        for name, (node, secured) in brokers.items():
            topic = f"round{number}-{protocol}"
            wire = node.connect()
            wire.create_topic(topic, PARTITIONS)
            wire.close()
            arguments = {
                "topic": topic,
                "records": options.records,
                "size_bytes": SIZE_BYTES,
                "partitions": PARTITIONS,
            }
            if protocol == "tls":
                arguments["authority"] = authority
            address = secured.tls if protocol == "tls" else node.bootstrap
            for work in ("produce", "consume"):
                measured[work, name, protocol] = _run(work, node, address, arguments)
    for name, (node, secured) in brokers.items():
        arguments = {"count": options.handshakes, "authority": authority}
        measured["handshakes", name, "tls"] = _run("handshakes", node, secured.tls, arguments)
    return measured


def _run(work: str, node: Node, address: str, arguments: dict[str, Any]) -> Measured:
    command = [sys.executable, "-m", "bench.security.client", work, address, json.dumps(arguments)]
    before_s = processor_s(node.pid)
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S
    )
    return Measured(json.loads(done.stdout), processor_s(node.pid) - before_s)


def _report(results: Results, options: argparse.Namespace) -> dict[str, Any]:
    gigabytes = options.records * SIZE_BYTES / 1e9
    report: dict[str, Any] = {
        "kafka_version": KAFKA_VERSION,
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        "rounds": options.rounds,
        "gigabytes": gigabytes,
    }
    for (work, broker, protocol), measured in sorted(results.items()):
        seconds = statistics.median(value.seconds for value in measured)
        processor = statistics.median(value.processor_s for value in measured)
        if work == "handshakes":
            row = {
                "per_s": round(options.handshakes / seconds, 1),
                "processor_ms_each": round(processor / options.handshakes * 1000, 3),
            }
        else:
            row = {
                "mb_per_s": round(gigabytes * 1000 / seconds, 1),
                "processor_s_per_gb": round(processor / gigabytes, 3),
            }
        report.setdefault(work, {}).setdefault(broker, {})[protocol] = row
    return report


def _targets(report: dict[str, Any]) -> list[str]:
    lines = []
    for work, speed_name, cost_name in (
        ("produce", "mb_per_s", "processor_s_per_gb"),
        ("consume", "mb_per_s", "processor_s_per_gb"),
        ("handshakes", "per_s", "processor_ms_each"),
    ):
        ours, kafkas = (report[work][broker]["tls"] for broker in (PENSTOCK, KAFKA))
        speed = ours[speed_name] / kafkas[speed_name]
        cost = ours[cost_name] / max(kafkas[cost_name], 1e-9)
        is_met = speed >= MIN_SPEED and cost <= MAX_PROCESSOR
        lines.append(
            f"{work} with TLS: {speed:.2f} of Kafka's throughput (at least {MIN_SPEED}), "
            f"{cost:.2f} of its processor time (at most {MAX_PROCESSOR}): "
            f"{'met' if is_met else 'missed'}"
        )
    return lines


if __name__ == "__main__":
    main()
