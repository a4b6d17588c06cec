"""Brokers of both storage engines and Kafka, side by side: requests that wait for the disk or not,
open files, and the start after a kill.

All brokers have the same settings and take turns; one works at a time. Kafka answers a connection's
requests one by one, so there are as many connections as it has use for.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.interop.kafka_jars import KafkaJars

from bench.broker.nodes import Kafka, Node, Penstock, Prepared, require_kafka
from bench.broker.processes import cpu_seconds, resident_mb
from bench.broker.wire import Wire
from bench.measure import data_home
from bench.storage.flood import RefusedError, flood, make_frame
from penstock.model.errors import ErrorCode
from penstock.protocol.records import Record, build_batch

KAFKA = "kafka"
KINDS = ("segmented", "commitlog", KAFKA)
SYNCHRONOUS = {"log.flush.interval.messages": "1"}
CONNECTIONS = 32
IN_FLIGHT = 32  # of each connection
TOPIC_PARTITIONS = 1_000
LEAST_REQUESTS, MOST_REQUESTS = 2_000, 10_000  # of one round
RECOVERED_BATCH_BYTES = 16 << 10
WARM_UP_S = 120.0
ASYNCHRONOUS = (12, 10_000)  # partitions


def measure(partitions: list[int], rounds: int, *, recovered_bytes: int) -> dict[str, Any]:
    jars = require_kafka()
    with TemporaryDirectory(dir=data_home()) as folder:
        home = Path(folder)
        return {
            "connections": CONNECTIONS,
            "in_flight_each": IN_FLIGHT,
            "synchronous": [
                _compare(jars, home / f"synchronous-{count}", SYNCHRONOUS, count, rounds)
                for count in partitions
            ],
            "asynchronous": [
                _compare(jars, home / f"asynchronous-{count}", {}, count, rounds)
                for count in ASYNCHRONOUS
                if count <= max(partitions) + TOPIC_PARTITIONS
            ],
            "recovery": _compare_recovery(jars, home / "recovery", recovered_bytes),
        }


def _prepare(kind: str, jars: KafkaJars, settings: Mapping[str, str]) -> Prepared:
    if kind == KAFKA:
        return Kafka(jars, settings)
    return Penstock({**settings, "storage.engine": kind})


def _compare(
    jars: KafkaJars, home: Path, settings: Mapping[str, str], partitions: int, rounds: int
) -> dict[str, Any]:
    samples: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    figures: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        nodes = {
            kind: stack.enter_context(Node(_prepare(kind, jars, settings), home / kind))
            for kind in KINDS
        }
        for kind, node in nodes.items():
            figures[kind] = {"creation_ms_a_partition": _create(node, partitions)}
            _warm_up(node, partitions)
        for number in range(rounds):
            for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                samples[kind].append(_run(nodes[kind], partitions))
        for kind, node in nodes.items():
            figures[kind] |= {
                name: round(median(sample[name] for sample in samples[kind]), 1)
                for name in samples[kind][0]
            }
            figures[kind] |= {
                "open_files": _count_files(node),
                "resident_mb": round(resident_mb(node.pid), 1),
            }
        print(f"{home.name}: {figures}", file=sys.stderr, flush=True)
    own = figures["commitlog"]["requests_per_s"]
    return {
        "partitions": partitions,
        **figures,
        "commitlog_to": {
            kind: round(own / figures[kind]["requests_per_s"], 2)
            for kind in KINDS
            if kind != "commitlog"
        },
    }


def _partition_at(partition: int) -> tuple[str, int]:
    return f"topic-{partition // TOPIC_PARTITIONS}", partition % TOPIC_PARTITIONS


def _create(node: Node, partitions: int) -> float:
    """Milliseconds a partition."""
    wire = node.connect()
    started_s = time.perf_counter()
    for number in range(0, partitions, TOPIC_PARTITIONS):
        count = min(TOPIC_PARTITIONS, partitions - number)
        created = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        while wire.create_topic(_partition_at(number)[0], count) not in created:
            time.sleep(0.05)  # the broker is still starting
    elapsed_ms = (time.perf_counter() - started_s) * 1000
    batch = _make_batch(100)
    for number in (*range(0, partitions, TOPIC_PARTITIONS), partitions - 1):
        _wait_until_led(wire, number, batch)
    wire.close()
    return round(elapsed_ms / partitions, 2)


def _wait_until_led(wire: Wire, partition: int, batch: bytes) -> None:
    while wire.produce(*_partition_at(partition), batch) != ErrorCode.NONE:
        time.sleep(0.05)


def _warm_up(node: Node, partitions: int) -> None:
    """Until every partition has a leader. The first writes also make files, and warm Java up."""
    deadline_s = time.perf_counter() + WARM_UP_S
    while True:
        try:
            _run(node, partitions)
            return
        except RefusedError:
            if time.perf_counter() > deadline_s:
                raise
            time.sleep(0.5)


def _run(node: Node, partitions: int) -> dict[str, float]:
    """Requests of 1 KiB a second, over all partitions, and the processor time of one."""
    batch = _make_batch(1 << 10)
    count = min(max(partitions, LEAST_REQUESTS), MOST_REQUESTS)
    frames = [make_frame(*_partition_at(number % partitions), batch) for number in range(count)]
    spent_s = cpu_seconds(node.pid)
    elapsed_s = flood(node.bootstrap, frames, connections=CONNECTIONS, in_flight=IN_FLIGHT)
    return {
        "requests_per_s": count / elapsed_s,
        "cpu_us": (cpu_seconds(node.pid) - spent_s) / count * 1e6,
    }


def _make_batch(value_bytes: int) -> bytes:
    now_ms = int(time.time() * 1000)
    return bytes(build_batch([Record(0, now_ms, None, bytes(value_bytes), ())]))


def _count_files(node: Node) -> int:
    """Descriptors of files of its data, of the process or of one that it has started."""
    return sum(_count_descriptors(pid, node.data) for pid in _family(node.pid))


def _count_descriptors(pid: int, data: Path) -> int:
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(descriptor).startswith(str(data))
        except OSError:
            continue  # closed meanwhile
    return count


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


# -- recovery ------------------------------------------------------------------------------


def _compare_recovery(jars: KafkaJars, home: Path, size_bytes: int) -> dict[str, Any]:
    """Seconds to the first acknowledged batch after a kill, with and without data."""
    result: dict[str, Any] = {"bytes": size_bytes, "batch_bytes": RECOVERED_BATCH_BYTES}
    for kind in KINDS:
        seconds: list[float] = []
        for size in (0, size_bytes):
            node = Node(_prepare(kind, jars, {}), home / f"{kind}-{size}")
            with node:
                _create(node, 12)
                _fill(node, size)
                node.kill()
                node.start()
                wire = node.connect()
                _wait_until_led(wire, 0, _make_batch(100))
                seconds.append(time.perf_counter() - node.started_at_s)
                wire.close()
        empty_s, full_s = seconds
        result[kind] = {
            "empty_s": round(empty_s, 2),
            "full_s": round(full_s, 2),
            "s_per_gb": round((full_s - empty_s) / size_bytes * 1e9, 2),
        }
        print(f"recovery of {kind}: {result[kind]}", file=sys.stderr, flush=True)
    return result


def _fill(node: Node, size_bytes: int) -> None:
    batch = _make_batch(RECOVERED_BATCH_BYTES)
    frames = [make_frame(*_partition_at(partition), batch) for partition in range(12)]
    count = size_bytes // RECOVERED_BATCH_BYTES
    if count:
        frames = [frames[number % 12] for number in range(count)]
        flood(node.bootstrap, frames, connections=4, in_flight=8)
