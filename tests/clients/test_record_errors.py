"""A batch with some invalid records, sent by librdkafka: each record gets its own error."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.our_topics import new_name
from tests.clients.under_test import BrokerUnderTest

from penstock.model.errors import ErrorCode

pytestmark = pytest.mark.xdist_group("client-kafka-python")

_INVALID_DIFFERENT_RECORD = -138  # librdkafka's: this record is valid, others are not
_TIMEOUT_S = 180


def _note(codes: dict[int, int], number: int, error: Any, _: Any) -> None:
    codes[number] = error.code() if error else 0


def test_on_a_compacted_topic_only_records_without_a_key_are_reported_invalid(
    broker: BrokerUnderTest,
) -> None:
    topic = new_name()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([new])[topic].result(_TIMEOUT_S)
    codes: dict[int, int] = {}
    # One batch: nothing is sent before flush. librdkafka evaluates the list of record errors only
    # if it names several records.
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000})
    for number, key in enumerate([b"a", None, None, b"b", b"c"]):
        producer.produce(
            topic,
            b"value",
            key=key,
            partition=0,
            on_delivery=partial(_note, codes, number),
        )
    assert producer.flush(_TIMEOUT_S) == 0
    innocent, blamed = _INVALID_DIFFERENT_RECORD, int(ErrorCode.INVALID_RECORD)
    assert codes == {0: innocent, 1: blamed, 2: blamed, 3: innocent, 4: innocent}
