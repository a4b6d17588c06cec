"""A topic with a delay under failovers: nothing comes early, nothing is lost, nothing comes
twice."""

import threading
import time
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.profile import is_long

from penstock.testing import Cluster

pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(not is_long(), reason="tests/unit/apis/test_topic_delay.py has the rules"),
]

TOPIC = "retry"
DELAY_MS = 1_500
HANG_S = 180.0
RECORDS = 600
KILLED_AT = (150, 350)  # records sent when the leader is killed


class Read(NamedTuple):
    number: int
    waited_ms: float  # since the leader appended it


def test_failovers_neither_show_records_early_nor_lose_any() -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic(
            TOPIC,
            partitions=1,
            replication_factor=3,
            config={
                "min.insync.replicas": 2,
                "message.timestamp.type": "LogAppendTime",
                "penstock.delay.ms": DELAY_MS,
            },
        )
        reads: list[Read] = []
        reader = threading.Thread(target=_read, args=(cluster.bootstrap_servers, reads))
        reader.start()
        _send(cluster)
        reader.join(HANG_S)
        assert not reader.is_alive(), f"only {len(reads)} of {RECORDS} records were read"
    assert [read.number for read in reads] == list(range(RECORDS))
    assert min(read.waited_ms for read in reads) >= DELAY_MS


def _send(cluster: Cluster) -> None:
    """An idempotent producer, whose retries neither repeat nor reorder."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": HANG_S * 1000,
        }
    )
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=0)
        if number in KILLED_AT:
            leader = cluster.leader(TOPIC, 0)
            cluster.kill(leader)
            assert producer.flush(HANG_S) == 0
            cluster.start(leader)
    assert producer.flush(HANG_S) == 0


def _read(bootstrap_servers: str, reads: list[Read]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    deadline = time.monotonic() + HANG_S
    while len(reads) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            continue
        _, append_ms = message.timestamp()
        reads.append(Read(int(message.value() or b""), time.time() * 1000 - append_ms))
    consumer.close()
