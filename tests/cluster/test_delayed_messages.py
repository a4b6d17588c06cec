"""Delayed messages while brokers are killed: each is delivered once, none early, and the answer to
every cancel is true."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from tests.profile import scaled

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

TOPIC, REPLIES, SHARDS = "reminders", "replies", "__penstock_deferred"
PARTITIONS = 3
COUNT = scaled(test=600, verify=100_000, release=200_000)
KILLS = scaled(test=2, verify=12, release=20)
LONGEST_MS = scaled(test=6_000, verify=120_000, release=300_000)
Headers = list[tuple[str, str | bytes | None]]
HANG_S = 180.0
CANCELLED_IN = 10  # every tenth has an id and is cancelled later


def test_kills_neither_lose_nor_repeat_nor_hurry_a_delayed_message() -> None:
    config = {"penstock.delayed.topic.num.partitions": 4}
    with Cluster(brokers=3, config=config) as cluster:
        _create_topics(cluster)
        with (
            _Reader(cluster.bootstrap_servers, TOPIC, PARTITIONS) as reader,
            _Reader(cluster.bootstrap_servers, REPLIES, 1) as replies,
        ):
            due_ms = _send(cluster)
            cancels = {number for number in due_ms if number % CANCELLED_IN == 0}
            replies.wait(lambda read: {int(message.key() or b"") for message in read} >= cancels)
            words = {int(message.key() or b""): message.value() for message in replies.messages}
            cancelled = {number for number in cancels if words[number] == b"cancelled"}
            expected = due_ms.keys() - cancelled
            reader.wait(lambda read: len(read) >= len(expected))
            _await_quiet(reader, len(expected))
    seen = Counter(int(message.value() or b"") for message in reader.messages)
    assert set(words.values()) <= {b"cancelled", b"delivered"}
    assert seen == Counter(expected)
    late_ms = sorted(
        read_ms - due_ms[int(message.value() or b"")]
        for message, read_ms in zip(reader.messages, reader.read_ms, strict=True)
    )
    assert late_ms[0] >= 0
    print(
        f"{len(expected)} delivered, {len(cancelled)} cancelled; ms late: "
        + ", ".join(f"{share} %: {late_ms[len(late_ms) * share // 101]:.0f}" for share in (50, 99))
        + f", most: {late_ms[-1]:.0f}"
    )


def _create_topics(cluster: Cluster) -> None:
    config = {"min.insync.replicas": 2}
    cluster.create_topic(REPLIES, partitions=1, replication_factor=3, config=config)
    cluster.create_topic(
        TOPIC,
        partitions=PARTITIONS,
        replication_factor=3,
        config=config | {"penstock.delayed.messages": "true"},
    )


def _send(cluster: Cluster) -> dict[int, int]:
    """When each is due, by its number. Leaders of the target and of shards die in turn."""
    chance = random.Random(5)
    due_ms: dict[int, int] = {}
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
    for number in range(COUNT):
        due_ms[number] = int(time.time() * 1000) + chance.randrange(LONGEST_MS)
        headers: Headers = [("penstock-deliver-at", b"%d" % due_ms[number])]
        if number % CANCELLED_IN == 0:
            headers.append(("penstock-delay-id", b"%d" % number))
        partition = number % PARTITIONS
        _produce(producer, b"%d" % number, headers, partition)
        if not number:
            assert producer.flush(HANG_S) == 0  # the topic of the shards exists from here on
        if number % (COUNT // KILLS) == COUNT // KILLS // 2:
            _kill_a_leader(cluster, producer, number)
    assert producer.flush(HANG_S) == 0
    for number in range(0, COUNT, CANCELLED_IN):
        headers = [
            ("penstock-delay-cancel", b"%d" % number),
            ("penstock-reply-topic", REPLIES.encode()),
        ]
        _produce(producer, b"", headers, 0)
    assert producer.flush(HANG_S) == 0
    assert Counter(map(str, failures)) == {}
    return due_ms


def _produce(producer: Producer, value: bytes, headers: Headers, partition: int) -> None:
    while True:
        try:
            producer.produce(TOPIC, value, headers=headers, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _kill_a_leader(cluster: Cluster, producer: Producer, number: int) -> None:
    producer.poll(0)
    topic, partition = (TOPIC, 0) if number * KILLS // COUNT % 2 else (SHARDS, 1)
    producer.flush(0.2)  # some are in flight when it dies
    leader = cluster.leader(topic, partition)
    cluster.kill(leader)
    cluster.wait_partition(topic, partition, lambda state: state.leader not in (leader, -1))
    cluster.start(leader)
    for index in range(PARTITIONS):
        cluster.wait_in_sync(TOPIC, index, 3)


class _Reader:
    """Reads a topic from its beginning, on a thread."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.messages: list[Message] = []
        self.read_ms: list[float] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
        )
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def wait(self, is_enough: Callable[[list[Message]], bool]) -> None:
        deadline = time.monotonic() + HANG_S
        while not is_enough(self.messages):
            assert time.monotonic() < deadline, f"{len(self.messages)} messages were read"
            self._is_closing.wait(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._is_closing.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    self.messages.append(message)
                    self.read_ms.append(time.time() * 1000)


def _await_quiet(reader: _Reader, count: int) -> None:
    """A message that comes twice would come soon after."""
    deadline = time.monotonic() + 2
    while len(reader.messages) == count and time.monotonic() < deadline:
        time.sleep(0.05)
