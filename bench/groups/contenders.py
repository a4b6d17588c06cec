"""The contenders: Penstock as `penstock up` starts it, and Kafka with and without its initial
delay.

Kafka waits three seconds for more members before a group's first assignment; a development node of
Penstock does not. Kafka also runs without that delay, so that it does not hide everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.interop.kafka_jars import KafkaJars

from bench.broker.nodes import Kafka, Node, Penstock, Prepared
from bench.broker.starting import send_first

KAFKA = "kafka"
KAFKA_AT_ONCE = "kafka_without_delay"
PENSTOCK = "penstock"


class KafkaWithoutDelay(Kafka):
    def prepare(self, directory: Path, port: int) -> list[str]:
        command = super().prepare(directory, port)
        with (directory / "server.properties").open("a") as settings:
            settings.write("group.initial.rebalance.delay.ms=0\n")
        return command


@contextmanager
def fresh_nodes(jars: KafkaJars, home: Path) -> Iterator[dict[str, str]]:
    """Starts all contenders on empty directories; yields their bootstrap addresses once they
    serve."""
    brokers: dict[str, Prepared] = {
        KAFKA: Kafka(jars),
        KAFKA_AT_ONCE: KafkaWithoutDelay(jars),
        PENSTOCK: Penstock(),
    }
    with ExitStack() as stack:
        nodes = {
            name: stack.enter_context(Node(broker, home / name)) for name, broker in brokers.items()
        }
        for node in nodes.values():
            wire = node.connect()
            send_first(wire)
            wire.close()
        yield {name: node.bootstrap for name, node in nodes.items()}
