"""Produces at a fixed rate and keeps the latency of every record."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

from confluent_kafka import Producer

RATE = 100  # records per second


class Probe:
    """Runs from the start until `stop`; `mark` begins a new series."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.series: dict[str, list[float]] = {}
        self.failed = 0
        self._name = "warm up"
        self._stop = threading.Event()
        self._topic, self._partitions = topic, partitions
        self._producer = Producer(
            {"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def mark(self, name: str) -> None:
        self._name = name

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)

    def _run(self) -> None:
        number, due = 0, time.perf_counter()
        while not self._stop.is_set():
            number += 1
            on_delivery = partial(self._note, self._name, time.perf_counter())
            partition = number * 7 % self._partitions
            self._producer.produce(
                self._topic, b"x" * 200, partition=partition, on_delivery=on_delivery
            )
            due += 1 / RATE
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)

    def _note(self, name: str, sent: float, error: Any, message: Any) -> None:
        if error is None:
            self.series.setdefault(name, []).append(1000 * (time.perf_counter() - sent))
        else:
            self.failed += 1
