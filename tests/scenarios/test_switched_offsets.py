"""A real consumer commits with one `offsets.storage`, the broker restarts with the other, and the
consumer reads on where it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.profile import is_long, scaled
from tests.zookeeper import kazoo_client

import penstock

pytestmark = pytest.mark.xdist_group("zookeeper")

PATIENCE_S = 180
SENT = [str(number).encode() for number in range(40)]
KAFKA, ZOOKEEPER = "kafka", "zookeeper"
ZNODE = "/consumers/shop/offsets/t/0"
Open = Callable[..., penstock.Broker]


@pytest.fixture
def connect(zookeeper_connect: str) -> str:
    return f"{zookeeper_connect}/{uuid4().hex}"


@pytest.fixture
def broker_with(connect: str, tmp_path: Path) -> Open:
    """Brokers with the same data and the same ZooKeeper, one after the other. A killed one keeps
    its id in ZooKeeper for a while, but not in the embedded store."""

    def open_broker(
        storage: str, *, is_dual: bool = False, is_embedded: bool = False
    ) -> penstock.Broker:
        config = {
            **({} if is_embedded else {"zookeeper.connect": connect}),
            "broker.id": 1,
            "offsets.storage": storage,
            "dual.commit.enabled": str(is_dual).lower(),
            "offsets.topic.num.partitions": 1,
        }
        return penstock.Broker(data=tmp_path, config=config)

    return open_broker


def prepare(broker: penstock.Broker) -> None:
    broker.create_topic("t")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in SENT:
        producer.produce("t", value)
    assert producer.flush(PATIENCE_S) == 0


def read_and_commit(broker: penstock.Broker, count: int, *, group: str = "shop") -> list[bytes]:
    """What the group reads next; committed by a member of it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    read: list[bytes] = []
    while len(read) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"only {len(read)} of {count} records"
        assert message.error() is None, message.error()
        read.append(message.value() or b"")
        consumer.commit(message=message, asynchronous=False)
    consumer.close()
    return read


@pytest.mark.parametrize(
    ("first", "then"),
    [(KAFKA, ZOOKEEPER), *([(ZOOKEEPER, KAFKA)] if is_long() else [])],
)
def test_a_group_reads_on_after_each_switch(broker_with: Open, first: str, then: str) -> None:
    """There and back again: both directions."""
    with broker_with(first) as broker:
        prepare(broker)
        assert read_and_commit(broker, 5) == SENT[:5]
    with broker_with(then) as broker:
        assert read_and_commit(broker, 5) == SENT[5:10]
        assert "offsets_migrated" in broker.logs()
        assert read_and_commit(broker, 1, group="new") == SENT[:1]
        lines = [line for line in broker.logs().splitlines() if "offsets_not_found" in line]
        assert lines
        assert all("group=new" in line for line in lines)
    with broker_with(first) as broker:
        assert read_and_commit(broker, 5) == SENT[10:15]


@pytest.mark.parametrize("storage", [KAFKA, ZOOKEEPER] if is_long() else [KAFKA])
def test_a_dual_commit_is_in_both(broker_with: Open, connect: str, storage: str) -> None:
    other = ZOOKEEPER if storage == KAFKA else KAFKA
    with broker_with(storage, is_dual=True) as broker:
        prepare(broker)
        assert read_and_commit(broker, 5) == SENT[:5]
        with kazoo_client(connect) as zookeeper:
            assert zookeeper.get(ZNODE)[0] == b"5"
    with broker_with(other, is_dual=True) as broker, kazoo_client(connect) as zookeeper:
        assert read_and_commit(broker, 5) == SENT[5:10]
        assert zookeeper.get(ZNODE)[0] == b"10"
        zookeeper.set(ZNODE, b"20")  # an instance that still commits to ZooKeeper alone
        assert read_and_commit(broker, 1) == SENT[20:21]


@pytest.mark.parametrize("is_dual", [False, True] if is_long() else [False])
def test_a_crash_during_a_migration_loses_no_offset(broker_with: Open, is_dual: bool) -> None:
    """Some groups are migrated, then the broker is killed: the next one has them all."""
    groups = [f"shop-{number}" for number in range(scaled(test=4, verify=20, release=20))]
    with broker_with(ZOOKEEPER, is_dual=is_dual, is_embedded=True) as broker:
        prepare(broker)
        for group in groups:
            commit_alone(broker, group, 7)
    killed = broker_with(KAFKA, is_dual=is_dual, is_embedded=True).start()
    assert committed(killed, groups[0]) == 7
    killed.kill()
    with broker_with(KAFKA, is_dual=is_dual, is_embedded=True) as broker:
        assert [committed(broker, group) for group in groups] == [7] * len(groups)
    with broker_with(ZOOKEEPER, is_dual=is_dual, is_embedded=True) as broker:
        assert [committed(broker, group) for group in groups] == [7] * len(groups)


def commit_alone(broker: penstock.Broker, group: str, offset: int) -> None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0}
    )
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: penstock.Broker, group: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0}
    )
    [partition] = consumer.committed([TopicPartition("t", 0)], timeout=PATIENCE_S)
    consumer.close()
    return int(partition.offset)
