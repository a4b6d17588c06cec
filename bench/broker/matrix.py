"""Runs all cells: both brokers run side by side, and every cell is measured on one, then the other.

Rounds are the outer loop, so that a disturbance of minutes affects one round of many cells rather
than all rounds of one cell. The first broker alternates between rounds.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.interop.kafka_jars import KafkaJars

from bench.broker import clients
from bench.broker.cells import LIBRDKAFKA, Cell, Latency
from bench.broker.embedded import measure_embedded
from bench.broker.nodes import Node, Prepared
from bench.broker.payloads import write_payload_file
from bench.broker.processes import cpu_seconds, peak_resident_mb, resident_mb
from bench.broker.raw_fetch import read_all
from bench.broker.starting import measure_start, send_first
from bench.broker.state import Sample, State
from bench.broker.wire import Wire
from penstock.model.errors import ErrorCode

CALM_S = 0.3
CALM_DEADLINE_S = 10.0
IDLE_S = 5.0
WARM_UP = Cell(LIBRDKAFKA, 1000, "1", "none", 12)
START_KEY = "start"
EMBEDDED_KEY = "embedded start"
MEMORY_KEY = "memory"
KAFKA = "kafka"
PENSTOCK = "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    cells: Sequence[Cell]
    latencies: Sequence[Latency]
    rounds: int
    starts: int
    embedded: bool  # whether `penstock.Broker()` is measured as well


class Matrix:
    def __init__(
        self,
        plan: Plan,
        state: State,
        brokers: Mapping[str, Prepared],
        jars: KafkaJars,
        home: Path,
    ) -> None:
        self._plan = plan
        self._state = state
        self._brokers = brokers
        self._jars = jars
        self._home = home
        self._payloads: dict[int, Path] = {}

    def run(self) -> None:
        for number in range(self._plan.starts):
            for name in self._order(number):
                self._once(START_KEY, name, number, partial(self._start, name))
            if self._plan.embedded:
                self._once(EMBEDDED_KEY, PENSTOCK, number, _start_embedded)
        with ExitStack() as stack:
            nodes = {
                name: stack.enter_context(Node(broker, self._home / f"{name}-data"))
                for name, broker in self._brokers.items()
            }
            idle = self._settle(nodes)
            for number in range(self._plan.rounds):
                self._round(number, nodes)
            for name, node in nodes.items():
                loaded = {"loaded_mb": resident_mb(node.pid), "peak_mb": peak_resident_mb(node.pid)}
                self._state.add(MEMORY_KEY, name, {"idle_mb": idle[name]} | loaded)

    def _order(self, number: int) -> list[str]:
        names = list(self._brokers)
        return names if number % 2 == 0 else names[::-1]

    def _once(self, key: str, name: str, number: int, measure: Callable[[], Sample]) -> None:
        """Measures and stores a sample, unless an earlier run has done so."""
        if self._state.count(key, name) > number:
            return
        sample = measure()
        self._state.add(key, name, sample)
        figures = ", ".join(f"{metric} {value:.4g}" for metric, value in sample.items())
        print(f"round {number + 1}  {key}  {name}: {figures}", flush=True)

    def _start(self, name: str) -> Sample:
        directory = self._home / f"{name}-start"
        try:
            return {"seconds": measure_start(self._brokers[name], directory)}
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _settle(self, nodes: Mapping[str, Node]) -> dict[str, float]:
        """Waits until both serve, records their idle memory, and warms them up."""
        for node in nodes.values():
            wire = node.connect()
            send_first(wire)
            wire.close()
        time.sleep(IDLE_S)
        idle = {name: resident_mb(node.pid) for name, node in nodes.items()}
        for node in nodes.values():
            self._measure(WARM_UP, node, "warm-up")
        return idle

    def _round(self, number: int, nodes: Mapping[str, Node]) -> None:
        for cell in self._plan.cells:
            for name in self._order(number):
                topic = f"{cell.key}-{number}".replace(" ", "-").replace("=", "-")
                calm_down(nodes)
                measure = partial(self._measure, cell, nodes[name], topic)
                self._once(cell.key, name, number, measure)
        for latency in self._plan.latencies:
            for name in self._order(number):
                calm_down(nodes)
                late = partial(self._measure_latency, latency, nodes[name], number)
                self._once(latency.key, name, number, late)

    def _measure(self, cell: Cell, node: Node, topic: str) -> Sample:
        wire = node.connect()
        create(wire, topic, cell.partitions)
        payloads = self._payload_file(cell.size_bytes)
        sample = _with_cpu(
            "produce",
            node,
            cell,
            lambda: clients.produce(cell, self._jars, node.bootstrap, topic, payloads),
        )
        if cell.is_read:
            sample |= _with_cpu(
                "consume", node, cell, lambda: clients.consume(cell, node.bootstrap, topic)
            )
            sample |= _with_cpu(
                "raw_fetch",
                node,
                cell,
                lambda: cell.records / read_all(wire, topic, cell.partitions, cell.records),
            )
        wire.delete_topic(topic)
        wire.close()
        return sample

    def _measure_latency(self, latency: Latency, node: Node, number: int) -> Sample:
        topic = f"latency-{latency.acks}-{latency.partitions}-{latency.rate}-{number}"
        wire = node.connect()
        create(wire, topic, latency.partitions)
        sample = clients.measure_latency(latency, node.bootstrap, topic)
        wire.delete_topic(topic)
        wire.close()
        return sample

    def _payload_file(self, size_bytes: int) -> Path:
        if size_bytes not in self._payloads:
            path = self._home / f"payloads-{size_bytes}"
            self._payloads[size_bytes] = write_payload_file(path, size_bytes)
        return self._payloads[size_bytes]


def calm_down(nodes: Mapping[str, Node]) -> None:
    """Waits until writes and deletions of the previous cell are done, so that they do not slow the
    next."""
    os.sync()
    deadline = time.monotonic() + CALM_DEADLINE_S
    while time.monotonic() < deadline:
        before = [cpu_seconds(node.pid) for node in nodes.values()]
        time.sleep(CALM_S)
        after = [cpu_seconds(node.pid) for node in nodes.values()]
        if all(end - start < CALM_S / 10 for start, end in zip(before, after, strict=True)):
            return


def _start_embedded() -> Sample:
    return {"seconds": measure_embedded()}


def _with_cpu(what: str, node: Node, cell: Cell, work: Callable[[], float]) -> Sample:
    """Throughput in MB/s, and the broker's CPU time per GB of messages."""
    before = cpu_seconds(node.pid)
    records_per_s = work()
    spent = cpu_seconds(node.pid) - before
    gigabytes = cell.records * cell.size_bytes / 1e9
    return {
        f"{what}_mb_s": records_per_s * cell.size_bytes / 1e6,
        f"{what}_cpu_s_per_gb": spent / gigabytes,
    }


def create(wire: Wire, topic: str, partitions: int) -> None:
    code = wire.create_topic(topic, partitions)
    if code != ErrorCode.NONE:
        raise RuntimeError(f"{topic} was not created: {code.name}")
