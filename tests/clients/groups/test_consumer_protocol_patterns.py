"""librdkafka's consumer protocol (KIP-848) with names and patterns in one subscription."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("client-groups-patterns")

_TIMEOUT_S = 180


def test_topics_by_name_are_assigned_before_those_by_pattern(broker: BrokerUnderTest) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    names = ["pattern-named", "pattern-match-a", "pattern-match-b"]
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(_TIMEOUT_S)
    assigned: list[set[str]] = []

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        assigned.append({partition.topic for partition in partitions})

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "patterns",
            "group.protocol": "consumer",
        }
    )
    try:
        consumer.subscribe(["pattern-named", "^pattern-match-.*"], on_assign=on_assign)
        deadline = time.monotonic() + _TIMEOUT_S
        while set().union(*assigned) != set(names):
            assert time.monotonic() < deadline, assigned
            consumer.poll(0.1)
    finally:
        consumer.close()
    assert assigned[0] == {"pattern-named"}
    assert set().union(*assigned[1:]) == {"pattern-match-a", "pattern-match-b"}
