"""The clients: each in its own process, the same for both brokers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop.kafka_jars import KafkaJars

from bench.broker.cells import JAVA, LIBRDKAFKA, Cell, Latency

CLIENT_TIMEOUT_S = 300
PERFORMANCE_CLASS = "org.apache.kafka.tools.ProducerPerformance"
_RATE = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec")


class ClientFailedError(Exception):
    """A client exited with an error; the message is its output."""


def produce(cell: Cell, jars: KafkaJars, bootstrap: str, topic: str, payloads: Path) -> float:
    """Records per second, as reported by the client."""
    if cell.client == JAVA:
        return _produce_with_java(cell, jars, bootstrap, topic, payloads)
    assert cell.client == LIBRDKAFKA
    result = run_librdkafka("produce", bootstrap, topic, cell._asdict() | {"records": cell.records})
    return cell.records / float(result["seconds"])


def consume(cell: Cell, bootstrap: str, topic: str) -> float:
    """Records per second, with assigned partitions and large batches."""
    result = run_librdkafka("consume", bootstrap, topic, cell._asdict() | {"records": cell.records})
    return cell.records / float(result["seconds"])


def measure_latency(latency: Latency, bootstrap: str, topic: str) -> dict[str, float]:
    """Milliseconds: p50, p99 and p99.9."""
    latencies: dict[str, float] = run_librdkafka("latency", bootstrap, topic, latency._asdict())
    return latencies


def run_librdkafka(what: str, bootstrap: str, topic: str, arguments: dict[str, Any]) -> Any:
    command = [sys.executable, "-m", "bench.broker.librdkafka", what, bootstrap, topic]
    return json.loads(_run([*command, json.dumps(arguments)]).splitlines()[-1])


def _produce_with_java(
    cell: Cell, jars: KafkaJars, bootstrap: str, topic: str, payloads: Path
) -> float:
    properties = [f"acks={cell.acks}", f"compression.type={cell.codec}"]
    if cell.partitions > 100:  # by default the client fills one partition at a time
        class_name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
        properties.append(f"partitioner.class={class_name}")
    command = [jars.java, "-Xmx512M", "-cp", f"{jars.jars}/*{_logging(jars)}", PERFORMANCE_CLASS]
    command += ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"]
    command += ["--num-records", str(cell.records), "--payload-file", str(payloads)]
    output = _run([*command, "--command-property", *properties])
    matches = [_RATE.match(line) for line in output.splitlines()]
    totals = [match for match in matches if match and int(match[1]) == cell.records]
    if not totals:
        raise ClientFailedError(f"{PERFORMANCE_CLASS} printed no total: {output[-1000:]}")
    return float(totals[-1][2])


def _logging(jars: KafkaJars) -> str:
    """The class path with the tests' logging config: logs go to stdout."""
    return f":{jars.classes}"


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ClientFailedError(f"{command[:4]}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
