"""Kafka's TransactionalMessageCopier, from its system tests, against this broker.

It ships in kafka-tools and can abort one transaction in three; here it is also killed. Its copy
must equal the input, each record once and in order.
"""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.clients.groups.scenarios import partitions_of, send
from tests.clients.java_clients import resolve_java_clients
from tests.clients.our_topics import new_name, new_topic
from tests.clients.transactions.scenarios import wait_decided
from tests.clients.transactions.worker_confluent_kafka import Worker
from tests.clients.under_test import BrokerUnderTest
from tests.interop.kafka_broker import Child
from tests.interop.kafka_jars import (
    KAFKA_VERSION,
    KafkaUnavailableError,
    Say,
    resolve_kafka_jars,
)
from tests.profile import is_long, scaled

pytestmark = [
    pytest.mark.xdist_group("transactions-java"),
    pytest.mark.skipif(not is_long(), reason="tests/cluster/test_exactly_once copies under kills"),
]

MAIN_CLASS = "org.apache.kafka.tools.TransactionalMessageCopier"
OLDER = "3.9.2"
COUNT = scaled(test=1_000, verify=20_000, release=100_000)
TRANSACTION_SIZE = 50
# It fetches committed offsets before it ends the transaction of its previous run, and waits for
# that one.
TRANSACTION_TIMEOUT_MS = 20_000
PATIENCE_S = 120.0
RANDOM_ABORTS = "--enable-random-aborts"
AS_MEMBER = ("--group-mode", "--use-group-metadata")

Command = Callable[..., list[str]]


# One run of the tool for each transaction version.
once_per_version = pytest.mark.parametrize("command", [KAFKA_VERSION, OLDER], indirect=True)


@pytest.fixture
def command(request: pytest.FixtureRequest, say: Say) -> Command:
    """Kafka's tool."""
    try:
        if request.param == KAFKA_VERSION:
            return resolve_kafka_jars(say).command
        return resolve_java_clients(request.param, say).command
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")


@once_per_version
def test_copies_are_exact_although_the_tool_aborts_and_is_killed(
    transaction_broker: BrokerUnderTest, command: Command, tmp_path: Path
) -> None:
    topics = Topics.fresh(transaction_broker, partitions=1)
    run = command(MAIN_CLASS, *topics.arguments(transaction_broker), RANDOM_ABORTS)
    killed = Child(run, tmp_path / "killed.log")
    wait_processed(killed, COUNT // 4)
    killed.end(with_signal=signal.SIGKILL, timeout_s=PATIENCE_S)
    wait_ended(Child(run, tmp_path / "resumed.log"))
    topics.check(transaction_broker)


@once_per_version
def test_as_a_group_member_the_tool_copies_every_partition(
    transaction_broker: BrokerUnderTest, command: Command, tmp_path: Path
) -> None:
    topics = Topics.fresh(transaction_broker, partitions=3)
    run = command(MAIN_CLASS, *topics.arguments(transaction_broker), RANDOM_ABORTS, *AS_MEMBER)
    wait_ended(Child(run, tmp_path / "member.log"))
    topics.check(transaction_broker)


class Topics(NamedTuple):
    """The source and target topics."""

    source: str
    target: str
    partitions: int
    sent: list[str]

    @classmethod
    def fresh(cls, broker: BrokerUnderTest, *, partitions: int) -> Topics:
        source, target = (new_topic(broker, partitions=partitions) for _ in range(2))
        return cls(source, target, partitions, send(broker, source, COUNT, partitions=partitions))

    def arguments(self, broker: BrokerUnderTest) -> list[str]:
        return [
            *("--broker-list", broker.bootstrap_servers),
            *("--input-topic", self.source, "--input-partition", "0"),
            *("--output-topic", self.target, "--transaction-size", str(TRANSACTION_SIZE)),
            *("--consumer-group", new_name(), "--transactional-id", new_name()),
            *("--transaction-timeout", str(TRANSACTION_TIMEOUT_MS)),
        ]

    def check(self, broker: BrokerUnderTest) -> None:
        wait_decided(broker, partitions_of(self.target, self.partitions))
        reader = Worker(broker.bootstrap_servers)
        for number in range(self.partitions):
            copies = reader.read(self.target, number, "read_committed")
            assert copies == self.sent[number :: self.partitions]


def wait_processed(copier: Child, count: int) -> None:
    """Waits until the tool reports this many committed records."""
    for number in itertools.count():
        line = copier.wait_next_line(number, timeout_s=PATIENCE_S)
        if line.startswith("{") and json.loads(line)["totalProcessed"] >= count:
            return


def wait_ended(copier: Child) -> None:
    status = copier.process.wait(PATIENCE_S)
    said = copier.tail()
    copier.end(with_signal=None, timeout_s=PATIENCE_S)
    assert status == 0, said
