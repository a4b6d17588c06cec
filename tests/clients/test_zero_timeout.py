"""Admin requests with a timeout of 0, which librdkafka sends for operations that it does not wait
for."""

from __future__ import annotations

import time
import warnings

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.clients.under_test import BrokerUnderTest

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("client-kafka-python"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

_TIMEOUT_S = 180
_TOPIC = "zero-timeout"


def _wait_for_partitions(admin: AdminClient, count: int) -> None:
    """Polls, because with a timeout of 0 the response precedes the change in the metadata."""
    deadline = time.monotonic() + _TIMEOUT_S
    while _count_partitions(admin) != count:
        assert time.monotonic() < deadline, f"{_TOPIC} has never had {count} partitions"


def _count_partitions(admin: AdminClient) -> int:
    topic = admin.list_topics(timeout=_TIMEOUT_S).topics.get(_TOPIC)
    return 0 if topic is None else len(topic.partitions)


def test_an_operation_with_a_timeout_of_0_completes(broker: BrokerUnderTest) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    created = admin.create_topics([NewTopic(_TOPIC, 1, 1)], operation_timeout=0)
    created[_TOPIC].result(_TIMEOUT_S)
    _wait_for_partitions(admin, 1)
    grown = admin.create_partitions([NewPartitions(_TOPIC, 3)], operation_timeout=0)
    grown[_TOPIC].result(_TIMEOUT_S)
    _wait_for_partitions(admin, 3)
    admin.delete_topics([_TOPIC], operation_timeout=0)[_TOPIC].result(_TIMEOUT_S)
    _wait_for_partitions(admin, 0)


def test_listing_reassignments_does_not_time_out(broker: BrokerUnderTest) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        assert admin.list_partition_reassignments(timeout_ms=0) == {}
    finally:
        admin.close()
