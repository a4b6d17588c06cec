"""Who is compared: two connectors, each on two brokers; every pair a contender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

JVM = "kafka"  # Spark's own connector, by the name of its format
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


CONTENDERS = tuple(Contender(each, broker) for broker in (PENSTOCK, KAFKA) for each in (JVM, OURS))
PEER = Contender(JVM, PENSTOCK).name
OWN = Contender(OURS, PENSTOCK).name


def in_turns(round_number: int) -> list[Contender]:
    """All of them; who begins changes from round to round."""
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
