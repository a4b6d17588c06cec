"""Topics for both brokers, filled with librdkafka."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench.broker.clients import run_librdkafka
from bench.broker.nodes import Node
from bench.broker.wire import Wire

PARTITIONS = 4
VALUE_BYTES = 100
CREATE_TIMEOUT_S = 30.0


def fill(node: Node, topics: Mapping[str, int]) -> None:
    """Creates each topic with its number of records, without keys."""
    arguments = {"size_bytes": VALUE_BYTES, "acks": "1", "codec": "none", "partitions": PARTITIONS}
    wire = node.connect()
    for topic, records in topics.items():
        create_topic(wire, topic)
        run_librdkafka("produce", node.bootstrap, topic, arguments | {"records": records})
    wire.close()


def create_topic(wire: Wire, topic: str) -> None:
    """Retries: Kafka may listen before it leads, and deletes an earlier topic asynchronously."""
    deadline = time.monotonic() + CREATE_TIMEOUT_S
    while code := wire.create_topic(topic, PARTITIONS):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} was not created: {code.name}")
        time.sleep(0.05)
