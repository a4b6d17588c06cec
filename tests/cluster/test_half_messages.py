"""Half messages while brokers are killed: delivered once if, and only if, the first decision is
commit; those that nobody decided about are asked for."""

import random
import threading
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.cluster.test_delayed_messages import _await_quiet, _Reader
from tests.profile import scaled

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

TOPIC, GROUP, SHARDS = "orders", "shop", "__penstock_deferred"
PARTITIONS = 2
COUNT = scaled(test=200, verify=20_000, release=50_000)
KILLS = scaled(test=1, verify=10, release=20)
HANG_S = 240.0
CONFIG = {"min.insync.replicas": "2"}


def test_kills_neither_lose_nor_repeat_nor_invent_a_half_message() -> None:
    config = {
        "penstock.delayed.topic.num.partitions": 3,
        "penstock.half.first.check.ms": 3_000,
        "penstock.half.check.interval.ms": 2_000,
    }
    with Cluster(brokers=3, config=config) as cluster:
        make_topics(cluster)
        with _Reader(cluster.bootstrap_servers, TOPIC, PARTITIONS) as reader:
            answers = Checker(cluster.bootstrap_servers)
            try:
                committed = send(cluster)
                reader.wait(lambda read: len(read) >= len(committed))
                _await_quiet(reader)
            finally:
                answers.close()
    assert Counter(int(message.value() or b"") for message in reader.messages) == Counter(committed)
    print(f"{len(committed)} of {COUNT} delivered, {answers.answered} checks answered")


def make_topics(cluster: Cluster) -> None:
    bound = CONFIG | {"penstock.half.groups": GROUP}
    for name, configs in (
        (TOPIC, CONFIG),
        (f"{GROUP}.half.checks", CONFIG),
        (f"{TOPIC}.half.expired", CONFIG),
        (f"{TOPIC}.half.decisions", bound),
        (f"{TOPIC}.half", bound),
    ):
        cluster.create_topic(name, partitions=PARTITIONS, replication_factor=3, config=configs)


def is_committed(number: int) -> bool:
    return number % 3 != 0


def send(cluster: Cluster) -> set[int]:
    """Every fifth is left to the check; the others are decided at once, most of them twice."""
    chance = random.Random(17)
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
            "message.timeout.ms": HANG_S * 1000,
            "on_delivery": lambda error, _: failures.append(error) if error else None,
        }
    )
    waiting: list[int] = []
    for number in range(COUNT):
        headers: Any = [
            ("penstock-half-id", b"%d" % number),
            ("penstock-half-group", GROUP.encode()),
        ]
        produce(producer, f"{TOPIC}.half", b"%d" % number, headers=headers)
        waiting.append(number)
        if len(waiting) == 50 or number == COUNT - 1:
            assert producer.flush(HANG_S) == 0, "a half is stored before it is decided"
            for undecided in waiting:
                decide(producer, chance, undecided)
            waiting.clear()
        if number % (COUNT // KILLS) == COUNT // KILLS // 2:
            kill_a_leader(cluster, number)
    assert producer.flush(HANG_S) == 0
    assert Counter(map(str, failures)) == {}
    return {number for number in range(COUNT) if is_committed(number)}


def decide(producer: Producer, chance: random.Random, number: int) -> None:
    if number % 5 == 0:
        return
    word = b"commit" if is_committed(number) else b"rollback"
    for _ in range(chance.choice((1, 2))):
        produce(producer, f"{TOPIC}.half.decisions", word, key=b"%d" % number)


def produce(producer: Producer, topic: str, value: bytes, **given: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, **given)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def kill_a_leader(cluster: Cluster, number: int) -> None:
    chosen = number * KILLS // COUNT % 3
    topic, partition = ((SHARDS, 0), (f"{TOPIC}.half", 0), (TOPIC, 1))[chosen]
    leader = cluster.leader(topic, partition)
    cluster.kill(leader)
    cluster.wait_partition(topic, partition, lambda state: state.leader not in (leader, -1))
    cluster.start(leader)
    for index in range(PARTITIONS):
        cluster.wait_in_sync(TOPIC, index, 3)


class Checker:
    """A member of the producers' group that knows what was done."""

    def __init__(self, servers: str) -> None:
        self.answered = 0
        settings = {"bootstrap.servers": servers, "log_level": 0}
        self._producer = Producer(settings | {"message.timeout.ms": HANG_S * 1000})
        self._consumer = Consumer(
            settings
            | {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": True}
        )
        self._consumer.subscribe([f"{GROUP}.half.checks"])
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()
        self._producer.flush(HANG_S)
        self._consumer.close()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            number = int(message.key() or b"")
            word = b"commit" if is_committed(number) else b"rollback"
            produce(self._producer, f"{TOPIC}.half.decisions", word, key=b"%d" % number)
            self._producer.poll(0)
            self.answered += 1
