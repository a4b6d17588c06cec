"""Brokers of both storage engines side by side: librdkafka writes and reads, in turn on each.

The broker's CPU time is measured too, because on a shared machine it is the steadier figure.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Producer

import penstock
from bench.broker import librdkafka
from bench.broker.processes import cpu_ns
from bench.measure import data_home
from bench.storage.engines import ENGINES

PARTITIONS = 12
VALUE_BYTES = 1000


def measure(*, rounds: int = 3, records: int = 150_000, small_batches: int = 20_000) -> Any:
    """Large batches as librdkafka makes them, and a batch for each message."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(dir=data_home())))
        brokers = {
            kind: stack.enter_context(
                penstock.Broker(data=home / kind, config={"storage.engine": kind})
            )
            for kind in ENGINES
        }
        return {
            "partitions": PARTITIONS,
            "batched": _compare(brokers, rounds, records, one_by_one=False),
            "one_message_a_batch": _compare(brokers, rounds, small_batches, one_by_one=True),
        }


def _compare(
    brokers: dict[str, penstock.Broker], rounds: int, records: int, *, one_by_one: bool
) -> dict[str, Any]:
    samples: dict[str, dict[str, list[float]]] = {kind: {} for kind in brokers}
    for number in range(rounds):
        names = list(brokers) if number % 2 == 0 else list(brokers)[::-1]
        for kind in names:
            topic = f"records-{one_by_one}-{number}"
            brokers[kind].create_topic(topic, partitions=PARTITIONS)
            for name, value in _run(brokers[kind], topic, records, one_by_one).items():
                samples[kind].setdefault(name, []).append(value)
    figures = {
        kind: {name: round(median(values), 2) for name, values in by_name.items()}
        for kind, by_name in samples.items()
    }
    return {
        "records": records,
        **figures,
        "ratio": {
            name: round(value / figures["segmented"][name], 2)
            for name, value in figures["commitlog"].items()
        },
    }


def _run(broker: penstock.Broker, topic: str, records: int, one_by_one: bool) -> dict[str, float]:
    servers = broker.bootstrap_servers

    def produce() -> None:
        if one_by_one:
            _produce_one_by_one(servers, topic, records)
        else:
            librdkafka.produce(
                servers,
                topic,
                size_bytes=VALUE_BYTES,
                acks="1",
                codec="none",
                partitions=200,  # so that all partitions are written at once
                records=records,
            )

    def consume() -> None:
        librdkafka.consume(servers, topic, partitions=PARTITIONS, records=records)

    return {
        **_measure("produce", broker, records, produce),
        **_measure("consume", broker, records, consume),
    }


def _produce_one_by_one(servers: str, topic: str, records: int) -> None:
    config = {"batch.num.messages": 1, "linger.ms": 0, "sticky.partitioning.linger.ms": 0}
    producer = Producer({"bootstrap.servers": servers, "acks": "1", **config})
    for number in range(records):
        while len(producer) > 50_000:
            producer.poll(0.01)
        producer.produce(topic, bytes(VALUE_BYTES), partition=number % PARTITIONS)
    assert producer.flush(120) == 0


def _measure(
    name: str, broker: penstock.Broker, records: int, work: Callable[[], None]
) -> dict[str, float]:
    spent, began_s = cpu_ns(broker.pid), time.perf_counter()
    work()
    elapsed_s = time.perf_counter() - began_s
    return {
        f"{name}_mb_s": records * VALUE_BYTES / 1e6 / elapsed_s,
        f"{name}_cpu_us_a_record": (cpu_ns(broker.pid) - spent) / 1e3 / records,
    }
