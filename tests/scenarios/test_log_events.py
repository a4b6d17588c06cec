"""Groups, transactions and configs leave their events in the log of a real broker, as JSON."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

import penstock

TIMEOUT_S = 180.0
SETTINGS = {
    "logging.format": "json",
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker(config=SETTINGS) as broker:
        broker.create_topic("orders")
        yield broker


def wait_event(broker: penstock.Broker, event_name: str, /, **fields: object) -> dict[str, Any]:
    ends_s = time.monotonic() + TIMEOUT_S
    while True:
        events = [json.loads(line) for line in broker.logs().splitlines()]
        for event in events:
            if event["event"] == event_name and fields.items() <= event.items():
                assert isinstance(event, dict)
                return event
        assert time.monotonic() < ends_s, (event_name, fields, events)
        time.sleep(0.02)


def test_a_group_rebalances_with_a_reason(broker: penstock.Broker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"})
    consumer.subscribe(["orders"])
    ends_s = time.monotonic() + TIMEOUT_S
    while not consumer.assignment():
        consumer.poll(0.05)
        assert time.monotonic() < ends_s
    consumer.close()
    joined = wait_event(broker, "group_rebalance", group="billing", members=1)
    assert joined["reason"].endswith("joins")
    wait_event(broker, "group_generation", group="billing", generation=1)
    left = wait_event(broker, "group_rebalance", group="billing", members=0)
    assert left["reason"].startswith("member rdkafka-")
    assert left["reason"].endswith(" left")


def transactional(broker: penstock.Broker, timeout_ms: int) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "copier",
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def test_a_transaction_times_out_and_a_producer_is_fenced(broker: penstock.Broker) -> None:
    first = transactional(broker, 60_000)
    first.begin_transaction()
    first.produce("orders", b"fenced")
    first.flush(TIMEOUT_S)
    second = transactional(broker, 1000)
    fenced = wait_event(broker, "producer_fenced", transactional_id="copier")
    assert fenced["component"] == "transaction_coordinator"
    second.begin_transaction()
    second.produce("orders", b"forgotten")
    second.flush(TIMEOUT_S)
    timed_out = wait_event(broker, "transaction_timed_out", transactional_id="copier")
    assert timed_out["open_ms"] > timed_out["timeout_ms"] == 1000
    with pytest.raises(KafkaException):
        first.commit_transaction(TIMEOUT_S)


def test_a_config_change_is_logged_with_its_value(broker: penstock.Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry("retention.ms", "777000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    event = wait_event(broker, "config_changed", resource="topic", name="orders")
    assert event["set"] == ["retention.ms=777000"]
