"""The contenders: two connectors on two brokers, in every combination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

JVM = "kafka"  # the format name of Spark's own connector
OURS = "penstock"
PENSTOCK = "penstock"
KAFKA = "kafka"
_CONNECTORS = {JVM: "JVM connector", OURS: "our connector"}
_BROKERS = {PENSTOCK: "Penstock", KAFKA: "Kafka"}


class Contender(NamedTuple):
    format: str
    broker: str

    @property
    def name(self) -> str:
        return f"{_CONNECTORS[self.format]} on {_BROKERS[self.broker]}"


CONTENDERS = tuple(
    Contender(connector, broker) for broker in (PENSTOCK, KAFKA) for connector in (JVM, OURS)
)
PEER = Contender(JVM, PENSTOCK).name
OWN = Contender(OURS, PENSTOCK).name


def rotated(round_number: int) -> list[Contender]:
    """All contenders, starting with another one in every round."""
    shift = round_number % len(CONTENDERS)
    return [*CONTENDERS[shift:], *CONTENDERS[:shift]]


def reading(servers: Mapping[str, str], contender: Contender, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers[contender.broker],
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def writing(servers: Mapping[str, str], contender: Contender, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers[contender.broker], "topic": topic}
