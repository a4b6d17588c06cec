"""Transactions of the Java client: 4.4 bumps its epoch with each one (KIP-890), 3.9 does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.our_topics import new_name, new_topic
from tests.clients.transactions.java_workers import java_worker
from tests.clients.transactions.scenarios import TransactionScenarios, wait_decided
from tests.clients.transactions.workers import TransactionClient, TransactionHarness
from tests.clients.under_test import BrokerUnderTest
from tests.interop.kafka_jars import Say
from tests.profile import scaled

from penstock.model.ids import TopicPartition

pytestmark = pytest.mark.xdist_group("transactions-java")

NEWEST, OLDER = "4.4.0", "3.9.2"
# aiokafka and librdkafka use the older protocol too.
CLIENT_VERSIONS = (NEWEST, OLDER)[: scaled(test=1, verify=2, release=2)]


@pytest.fixture(scope="module", params=CLIENT_VERSIONS)
def client(
    request: pytest.FixtureRequest, transaction_broker: BrokerUnderTest, say: Say
) -> TransactionClient:
    return java_worker(request.param, transaction_broker.bootstrap_servers, say)


@pytest.fixture
def harnesses(
    transaction_broker: BrokerUnderTest, say: Say, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[TransactionHarness]]:
    """One worker per transaction version."""
    harnesses = [
        TransactionHarness(
            java_worker(version, transaction_broker.bootstrap_servers, say),
            tmp_path_factory.mktemp(version),
        )
        for version in (NEWEST, OLDER)
    ]
    yield harnesses
    for harness in harnesses:
        harness.end()


class TestJava(TransactionScenarios):
    pass


def test_transactions_of_both_protocols_share_a_partition(
    transaction_broker: BrokerUnderTest, harnesses: list[TransactionHarness]
) -> None:
    tp = TopicPartition(new_topic(transaction_broker, partitions=1), 0)
    newer, older = (harness.take().open(new_name()) for harness in harnesses)
    for number in range(4):
        newer.begin()
        older.begin()
        newer.send(*tp, f"newer {number}")
        older.send(*tp, f"older {number}")
        older.commit() if number % 2 else older.abort()
        newer.send(*tp, f"newer {number} again")
        newer.abort() if number % 2 else newer.commit()
    wait_decided(transaction_broker, [tp])
    wanted = ["newer 0", "newer 0 again", "older 1", "newer 2", "newer 2 again", "older 3"]
    assert [newer.read(*tp), older.read(*tp)] == [wanted, wanted]
