"""Clients in a child process: `python -m bench.security.client WHAT ADDRESS JSON`.

Prints one line of JSON. Connections and metadata are ready before the clock starts.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.broker.payloads import make_payloads

DEADLINE_S = 600.0
THREADS = 4  # of handshakes; OpenSSL releases the interpreter's lock


def produce(address: str, *, topic: str, records: int, size_bytes: int, **rest: Any) -> float:
    failures: list[Any] = []
    producer = Producer(
        {
            **_security(address, **rest),
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(error),
        }
    )
    producer.list_topics(topic, timeout=60)
    payloads = make_payloads(size_bytes)
    start = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, payloads[number % len(payloads)])
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(DEADLINE_S)
    if left or failures:
        raise SystemExit(f"{left} messages left, failures: {failures[:3]}")
    return time.perf_counter() - start


def consume(address: str, *, topic: str, records: int, partitions: int, **rest: Any) -> float:
    consumer = Consumer(
        {
            **_security(address, **rest),
            "group.id": "none: partitions are assigned",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
        }
    )
    consumer.list_topics(topic, timeout=60)
    deadline, received = time.monotonic() + DEADLINE_S, 0
    start = time.perf_counter()
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    while received < records:
        received += len(consumer.consume(min(10_000, records - received), timeout=1))
        if time.monotonic() > deadline:
            raise SystemExit(f"only {received} of {records} messages arrived")
    seconds = time.perf_counter() - start
    consumer.close()
    return seconds


def shake_hands(address: str, *, count: int, authority: str, **rest: Any) -> float:
    """Connects, shakes hands in full and leaves."""
    context = ssl.create_default_context(cafile=authority)
    host, _, port = address.rpartition(":")

    def connect(_number: int) -> None:
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            pass

    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(connect, range(count)))
    return time.perf_counter() - start


def _security(address: str, *, authority: str | None = None, **_: Any) -> dict[str, Any]:
    plaintext: dict[str, Any] = {"bootstrap.servers": address}
    if authority is None:
        return plaintext
    return plaintext | {"security.protocol": "SSL", "ssl.ca.location": authority}


_WORKS: dict[str, Callable[..., float]] = {
    "produce": produce,
    "consume": consume,
    "handshakes": shake_hands,
}

if __name__ == "__main__":
    work_name, server, arguments = sys.argv[1:]
    print(json.dumps(_WORKS[work_name](server, **json.loads(arguments))))
