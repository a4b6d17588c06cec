"""Fixtures of the transaction tests: one broker per worker, and clients in processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.clients.transactions.scenarios")

from tests.clients.transactions.workers import TransactionClient, TransactionHarness  # noqa: E402
from tests.clients.under_test import BrokerUnderTest, broker_under_test  # noqa: E402
from tests.interop.kafka_jars import KafkaUnavailableError, Say  # noqa: E402

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="session")
def transaction_broker(
    tmp_path_factory: pytest.TempPathFactory, say: Say
) -> Iterator[BrokerUnderTest]:
    """The broker under test. Every test has its own topics and ids, so that they can share it."""
    try:
        with broker_under_test(tmp_path_factory.mktemp("transactions"), say, SETTINGS) as broker:
            yield broker
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")


@pytest.fixture(scope="module")
def kept_shop(
    client: TransactionClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TransactionHarness]:
    harness = TransactionHarness(client, tmp_path_factory.mktemp("workers"))
    yield harness
    harness.end()


@pytest.fixture
def harness(
    request: pytest.FixtureRequest, kept_shop: TransactionHarness
) -> Iterator[TransactionHarness]:
    failures = request.session.testsfailed
    yield kept_shop
    kept_shop.clear(failed=request.session.testsfailed > failures)
