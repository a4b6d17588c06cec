"""The topics that are read and written: created on either broker, filled with librdkafka."""

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
    """Each with so many records, without keys."""
    asked = {"size_bytes": VALUE_BYTES, "acks": "1", "codec": "none", "partitions": PARTITIONS}
    wire = node.connect()
    for topic, records in topics.items():
        create_topic(wire, topic)
        run_librdkafka("produce", node.bootstrap, topic, asked | {"records": records})
    wire.close()


def create_topic(wire: Wire, topic: str) -> None:
    """Kafka may not lead yet when it listens, and deletes the last of a name when it has time."""
    deadline = time.monotonic() + CREATE_TIMEOUT_S
    while code := wire.create_topic(topic, PARTITIONS):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} was not created: {code.name}")
        time.sleep(0.05)
