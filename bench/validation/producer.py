"""What the check of records costs a producer: records a second through librdkafka.

The producer compresses on its own core while the broker checks on another, so this is what a user
sees of the broker's additional CPU time as long as the broker has time to spare.
"""

from __future__ import annotations

import random
import statistics
import time

from confluent_kafka import Producer

from penstock.protocol.compression import Codec

ROUNDS = 15  # of each topic
WARM_UP_ROUNDS = 2
RECORDS = 100_000  # in a round
QUEUE_RECORDS = 200_000


def make_values(count: int) -> list[bytes]:
    """Random words, 100 bytes: they compress to half with lz4 and to a third with zstd."""
    seeded = random.Random(1)
    words = [bytes(seeded.choices(b"abcdefghijklmnop", k=6)) for _ in range(300)]
    return [b" ".join(seeded.choices(words, k=15))[:100] for _ in range(count)]


def measure_producer(
    bootstrap: str, codec: Codec, checked: str, unchecked: str
) -> dict[str, float]:
    """Medians in records a second, and their ratio as the median over neighbouring rounds."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec.name.lower(),
            "queue.buffering.max.messages": QUEUE_RECORDS,
        }
    )
    values = make_values(1000)
    rates: dict[str, list[float]] = {checked: [], unchecked: []}
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        for topic in (checked, unchecked) if number % 2 else (unchecked, checked):
            rate = RECORDS / _produce(producer, topic, values)
            if number >= WARM_UP_ROUNDS:
                rates[topic].append(rate)
    pairs = zip(rates[checked], rates[unchecked], strict=True)
    return {
        "checked_records_per_s": round(statistics.median(rates[checked])),
        "unchecked_records_per_s": round(statistics.median(rates[unchecked])),
        "throughput_ratio": round(statistics.median(on / off for on, off in pairs), 3),
    }


def _produce(producer: Producer, topic: str, values: list[bytes]) -> float:
    """Seconds until every record of a round is acknowledged."""
    failed: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    started = time.perf_counter()
    for number in range(RECORDS):
        producer.produce(topic, values[number % len(values)], on_delivery=delivered)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    seconds = time.perf_counter() - started
    assert not failed, failed[0]
    assert left == 0, left
    return seconds
