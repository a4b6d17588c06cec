"""How long a librdkafka producer cannot write after the leader was killed."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from confluent_kafka import Producer

from bench.broker.nodes import NodeFailedError
from bench.cluster.contenders import Contender

SEND_EVERY_S = 0.01
BEFORE = 100  # acknowledged before the kill
DEADLINE_S = 120.0


def measure_failover(contender: Contender, topic: str, leader: int) -> float:
    """Seconds from kill -9 of the leader to the first acknowledgement of a later record."""
    sender = _Sender(contender.bootstrap, topic)
    sender.send_until_acknowledged(BEFORE)
    start = time.perf_counter()
    contender.kill(leader)
    sender.send_until_acknowledged(sender.sent)
    return time.perf_counter() - start


class _Sender:
    """Sends a number every few milliseconds to the only partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self._last_acknowledged = -1
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )

    def send_until_acknowledged(self, number: int) -> None:
        """Sends until this number, or a later one, is acknowledged."""
        deadline = time.perf_counter() + DEADLINE_S
        while self._last_acknowledged < number:
            note = partial(self._note, self.sent)
            self._producer.produce(self._topic, str(self.sent), on_delivery=note)
            self.sent += 1
            self._producer.poll(SEND_EVERY_S)
            if time.perf_counter() > deadline:
                raise NodeFailedError(f"{self._topic}: nothing acknowledged in {DEADLINE_S:.0f} s")

    def _note(self, number: int, error: Any, _: Any) -> None:
        if error is None:
            self._last_acknowledged = max(self._last_acknowledged, number)
