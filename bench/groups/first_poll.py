"""A new group's first message: from creating a consumer to receiving an existing record."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException

from bench.broker.starting import TOPIC

TIMEOUT_S = 60.0


def measure_first_poll(bootstrap: str, group: str) -> float:
    """Milliseconds, with a client at its defaults."""
    start = time.perf_counter()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    message = consumer.poll(TIMEOUT_S)
    milliseconds = (time.perf_counter() - start) * 1000
    consumer.close()
    if message is None:
        raise TimeoutError(f"no message from {bootstrap} within {TIMEOUT_S:.0f} s")
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    return milliseconds
