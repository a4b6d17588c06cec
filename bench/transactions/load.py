"""A transactional librdkafka producer: `python -m bench.transactions.load BOOTSTRAP TOPIC JSON`.

Sends for some seconds and commits periodically; prints one line of JSON. Its producer id, the
partitions and the coordinator are known before the clock starts.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Producer

from bench.broker.payloads import make_payloads

STEP_S = 60.0
MOST_UNSENT = 100_000  # above this, the sender waits


def run(
    bootstrap: str, topic: str, *, seconds: float, commit_every_ms: float, size_bytes: int, **_: Any
) -> dict[str, float]:
    """With `commit_every_ms` 0, commits after each record."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"bench-{topic}",
            "queue.buffering.max.messages": 2 * MOST_UNSENT,
            "linger.ms": 5 if commit_every_ms else 0,
        }
    )
    producer.init_transactions(STEP_S)
    payloads = make_payloads(size_bytes)
    _one_transaction(producer, topic, payloads, 0.0)  # looks up the coordinator and the leaders
    records = transactions = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        records += _one_transaction(producer, topic, payloads, commit_every_ms / 1000)
        transactions += 1
    taken = time.perf_counter() - start
    return {"seconds": taken, "records": records, "transactions": transactions}


def _one_transaction(producer: Producer, topic: str, payloads: list[bytes], lasts_s: float) -> int:
    """Commits a transaction and returns its number of records."""
    producer.begin_transaction()
    count, end = 0, time.perf_counter() + lasts_s
    while True:
        producer.produce(topic, payloads[count % len(payloads)])
        count += 1
        if count % 100 == 0:
            producer.poll(0 if len(producer) < MOST_UNSENT else 0.01)
        if not lasts_s or (count % 10 == 0 and time.perf_counter() >= end):
            break
    producer.commit_transaction(STEP_S)
    return count


if __name__ == "__main__":
    bootstrap_servers, topic_name, arguments = sys.argv[1:]
    print(json.dumps(run(bootstrap_servers, topic_name, **json.loads(arguments))))
