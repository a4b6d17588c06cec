"""librdkafka in a child process: `python -m bench.broker.librdkafka WHAT BOOTSTRAP TOPIC JSON`.

Prints one line of JSON. Connections and metadata are ready before the clock starts.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.broker.payloads import make_payloads

DEADLINE_S = 240.0
WARM_UP_S = 1.0
_TIME = struct.Struct(">q")


def produce(
    bootstrap: str, topic: str, *, size_bytes: int, acks: str, codec: str, partitions: int,
    records: int, **_: Any,
) -> dict[str, float]:  # fmt: skip
    failures: list[Any] = []
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "compression.type": codec,
        "queue.buffering.max.messages": 1_000_000,
        "delivery.report.only.error": True,
        "on_delivery": lambda error, _: failures.append(error),
    }
    if partitions > 100:  # by default librdkafka fills one partition at a time
        config["sticky.partitioning.linger.ms"] = 0
    producer = Producer(config)
    producer.list_topics(topic, timeout=30)
    payloads = make_payloads(size_bytes)
    start = time.perf_counter()
    _send(producer, topic, payloads, records)
    left = producer.flush(DEADLINE_S)
    seconds = time.perf_counter() - start
    if left or failures:
        raise SystemExit(f"{left} messages left, failures: {failures[:3]}")
    return {"seconds": seconds}


def _send(producer: Producer, topic: str, payloads: list[bytes], records: int) -> None:
    send, count = producer.produce, len(payloads)
    for number in range(records):
        try:
            send(topic, payloads[number % count])
        except BufferError:
            while len(producer) > 500_000:
                producer.poll(0.01)
            send(topic, payloads[number % count])
        if number % 10_000 == 0:
            producer.poll(0)


def consume(
    bootstrap: str, topic: str, *, partitions: int, records: int, **_: Any
) -> dict[str, float]:
    consumer = _make_consumer(bootstrap)
    consumer.list_topics(topic, timeout=30)
    deadline = time.monotonic() + DEADLINE_S
    received = 0
    start = time.perf_counter()
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    while received < records:
        received += len(consumer.consume(min(10_000, records - received), timeout=1))
        if time.monotonic() > deadline:
            raise SystemExit(f"only {received} of {records} messages arrived")
    seconds = time.perf_counter() - start
    consumer.close()
    return {"seconds": seconds}


def measure_latency(
    bootstrap: str, topic: str, *, acks: str, partitions: int, rate: int, seconds: float
) -> dict[str, float]:
    sys.setswitchinterval(0.0005)  # so that the reader does not wait for the pacing loop
    consumer = _make_consumer(bootstrap)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    total = int(rate * (seconds + WARM_UP_S))
    latencies_ns: list[int] = []
    reader = threading.Thread(target=_read_latencies, args=(consumer, total, latencies_ns))
    reader.start()
    _send_at_rate(bootstrap, topic, acks, rate, total)
    reader.join()
    consumer.close()
    measured = sorted(latencies_ns[int(rate * WARM_UP_S) :])
    return {
        name: round(measured[int(len(measured) * share)] / 1e6, 3)
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999))
    }


def _read_latencies(consumer: Consumer, total: int, latencies_ns: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(latencies_ns) < total and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        now = time.perf_counter_ns()
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        value = message.value()
        assert isinstance(value, bytes)
        latencies_ns.append(now - _TIME.unpack_from(value)[0])
    if len(latencies_ns) < total:
        raise SystemExit(f"only {len(latencies_ns)} of {total} messages arrived")


def _send_at_rate(bootstrap: str, topic: str, acks: str, rate: int, total: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    producer.list_topics(topic, timeout=30)
    filler = make_payloads(1000)[0][_TIME.size :]
    start = time.perf_counter()
    for number in range(total):
        wait_s = start + number / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(topic, _TIME.pack(time.perf_counter_ns()) + filler)
        producer.poll(0)
    left = producer.flush(30)
    if left:
        raise SystemExit(f"{left} messages were not acknowledged")


def _make_consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none: partitions are assigned",  # required by the constructor
            "enable.auto.commit": False,
        }
    )


_WORKS: dict[str, Callable[..., dict[str, float]]] = {
    "produce": produce,
    "consume": consume,
    "latency": measure_latency,
}

if __name__ == "__main__":
    what, bootstrap_servers, topic_name, arguments = sys.argv[1:]
    print(json.dumps(_WORKS[what](bootstrap_servers, topic_name, **json.loads(arguments))))
