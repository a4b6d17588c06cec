"""Fixtures of the group tests: one broker per worker, with short sessions allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.clients.groups.scenarios")

from tests.clients.groups.harness import GroupHarness, Pool  # noqa: E402
from tests.clients.groups.scenarios import GroupClient  # noqa: E402
from tests.clients.under_test import BrokerUnderTest, broker_under_test  # noqa: E402
from tests.interop.kafka_jars import KafkaUnavailableError, Say  # noqa: E402

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    # In the consumer protocol the broker sets them, not the member.
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[BrokerUnderTest]:
    """The broker under test. Every test has its own groups and topics, so that they can share
    it."""
    try:
        with broker_under_test(tmp_path_factory.mktemp("groups"), say, SETTINGS) as broker:
            yield broker
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Member processes, reused by later tests."""
    pool = Pool(tmp_path_factory.mktemp("members"))
    yield pool
    pool.close()


@pytest.fixture
def harness(
    request: pytest.FixtureRequest, pool: Pool, group_client: GroupClient
) -> Iterator[GroupHarness]:
    harness = GroupHarness(pool, group_client.command, group_client.protocol)
    failures = request.session.testsfailed
    yield harness
    harness.close(failed=request.session.testsfailed > failures)
