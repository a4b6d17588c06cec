"""Delayed messages while brokers and clients are killed: each is delivered once, none early, the
answer to every cancel is true, and of a transaction all messages come or none."""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Self

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
OnDelivery = Callable[[object, Message], None]
Headers = list[tuple[str, str | bytes | None]]
HANG_S = 180.0  # without any progress
QUIET_S = 2.0
CANCELLED_IN = 10  # every tenth has an id and is cancelled later
IN_TRANSACTION = 5  # messages


def test_kills_neither_lose_nor_repeat_nor_hurry_a_delayed_message() -> None:
    config = {"penstock.delayed.topic.num.partitions": 4}
    with Cluster(brokers=3, config=config) as cluster:
        _create_topics(cluster)
        with (
            _Reader(cluster.bootstrap_servers, TOPIC, PARTITIONS) as reader,
            _Reader(cluster.bootstrap_servers, REPLIES, 1) as replies,
        ):
            with _Transactions(cluster.bootstrap_servers) as transactions:
                messages = _send(cluster, transactions)
            cancels = {number for number in messages if number % CANCELLED_IN == 0}
            replies.wait(lambda read: {int(message.key() or b"") for message in read} >= cancels)
            words = {int(message.key() or b""): message.value() for message in replies.messages}
            cancelled = {number for number in cancels if words[number] == b"cancelled"}
            expected = messages.keys() - cancelled
            in_transactions = IN_TRANSACTION * transactions.count
            reader.wait(lambda read: len(read) >= len(expected) + in_transactions)
            _await_quiet(reader)
    transactions.check([message.value() or b"" for message in reader.messages])
    read_ms = {
        int(message.value() or b""): at_ms
        for message, at_ms in zip(reader.messages, reader.read_ms, strict=True)
        if (message.value() or b"").isdigit()
    }
    assert set(words.values()) <= {b"cancelled", b"delivered"}
    values = (message.value() or b"" for message in reader.messages)
    assert Counter(int(value) for value in values if value.isdigit()) == Counter(expected)
    assert all(read_ms[number] >= messages[number].due_ms for number in expected)
    late_ms = sorted(
        read_ms[number] - messages[number].due_ms
        for number in expected
        if messages[number].is_in_time
    )
    print(
        f"{len(expected)} delivered, {len(cancelled)} cancelled, {transactions.count} transactions "
        f"of {transactions.clients} clients committed; {len(late_ms)} were surely stored before "
        f"they were due, ms late: {_describe(late_ms)}"
    )


def _describe(late_ms: list[float]) -> str:
    if not late_ms:
        return "-"
    shares = {share: late_ms[len(late_ms) * share // 1001] for share in (500, 900, 990, 999)}
    described = [f"{share / 10:g} %: {least_ms:.0f}" for share, least_ms in shares.items()]
    return ", ".join([*described, f"most: {late_ms[-1]:.0f}"])


def _create_topics(cluster: Cluster) -> None:
    config = {"min.insync.replicas": 2}
    cluster.create_topic(REPLIES, partitions=1, replication_factor=3, config=config)
    cluster.create_topic(
        TOPIC,
        partitions=PARTITIONS,
        replication_factor=3,
        config=config | {"penstock.delayed.messages": "true"},
    )


@dataclass
class _Sent:
    due_ms: int
    stored_ms: float | None = None  # at most so late

    @property
    def is_in_time(self) -> bool:
        """Brokers that are down take nothing: some are stored after they were due."""
        return self.stored_ms is not None and self.stored_ms <= self.due_ms


def _send(cluster: Cluster, transactions: "_Transactions") -> dict[int, _Sent]:
    """By number. Leaders of the target and of shards, and controllers, die in
    turn; a client each time."""
    chance = random.Random(5)
    messages: dict[int, _Sent] = {}
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
            "message.timeout.ms": 0,  # until it is acknowledged, however slow the machine is
            "queue.buffering.max.messages": 10_000,  # those behind a kill are due later
        }
    )

    def on_delivery(error: object, message: Message) -> None:
        if error:
            failures.append(error)
        elif message.value():
            messages[int(message.value() or b"")].stored_ms = time.time() * 1000

    for number in range(COUNT):
        messages[number] = _Sent(int(time.time() * 1000) + chance.randrange(LONGEST_MS))
        headers: Headers = [("penstock-deliver-at", b"%d" % messages[number].due_ms)]
        if number % CANCELLED_IN == 0:
            headers.append(("penstock-delay-id", b"%d" % number))
        partition = number % PARTITIONS
        _produce(producer, b"%d" % number, headers, partition, on_delivery)
        if not number:
            _flush(producer)  # the topic of the shards exists from here on
        if number % (COUNT // KILLS) == COUNT // KILLS // 2:
            _kill_a_broker(cluster, producer, number)
            transactions.kill_the_client()
    _flush(producer)
    for number in range(0, COUNT, CANCELLED_IN):
        headers = [
            ("penstock-delay-cancel", b"%d" % number),
            ("penstock-reply-topic", REPLIES.encode()),
        ]
        _produce(producer, b"", headers, 0, on_delivery)
    _flush(producer)
    assert Counter(map(str, failures)) == {}
    return messages


def _produce(
    producer: Producer, value: bytes, headers: Headers, partition: int, on_delivery: OnDelivery
) -> None:
    while True:
        try:
            producer.produce(
                TOPIC, value, headers=headers, partition=partition, on_delivery=on_delivery
            )
            producer.poll(0)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _flush(producer: Producer) -> None:
    left, deadline = len(producer), time.monotonic() + HANG_S
    while producer.flush(1.0):
        assert time.monotonic() < deadline, f"{left} messages are not acknowledged"
        if len(producer) != left:
            left, deadline = len(producer), time.monotonic() + HANG_S


def _kill_a_broker(cluster: Cluster, producer: Producer, number: int) -> None:
    producer.poll(0)
    chosen = number * KILLS // COUNT % 3
    topic, partition = (SHARDS, 1) if chosen == 0 else (TOPIC, 0)
    producer.flush(0.2)  # some are in flight when it dies
    victim = cluster.controller if chosen == 2 else cluster.leader(topic, partition)
    cluster.kill(victim)
    cluster.wait_partition(topic, partition, lambda state: state.leader not in (victim, -1))
    cluster.start(victim)
    for index in range(PARTITIONS):
        cluster.wait_in_sync(TOPIC, index, 3)


class _Transactions:
    """Clients that delay messages in transactions, one after the other: each is killed somewhere.

    A message's value says its client, its transaction, and which of its messages it is."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.clients = 0
        self._servers = bootstrap_servers
        self._process: subprocess.Popen[str] | None = None
        self._committed: list[str] = []  # as the clients were told
        self._begun: list[str] = []
        self._output: threading.Thread

    def __enter__(self) -> Self:
        self._start_client()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        # Fences the last one: what it has not committed is aborted.
        self._start("0")
        assert self._process is not None
        assert self._process.wait(HANG_S) == 0
        self._output.join(HANG_S)

    @property
    def count(self) -> int:
        return len(self._committed)

    def kill_the_client(self) -> None:
        """Another goes on. The first one is somewhere in its next transaction."""
        self._wait_for_a_commit()
        self._kill()
        self._start_client()

    def _wait_for_a_commit(self) -> None:
        before, deadline = self.count, time.monotonic() + HANG_S
        while self.count == before:
            assert time.monotonic() < deadline, "no transaction is committed"
            time.sleep(0.01)

    def _start_client(self) -> None:
        self.clients += 1
        self._start("1000000")

    def _start(self, transactions: str) -> None:
        settings = (self._servers, TOPIC, str(self.clients), transactions, str(IN_TRANSACTION))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.delays_in_transactions", *settings],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._output = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._output.start()

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(HANG_S)
        self._output.join(HANG_S)

    def _read(self, output: IO[str]) -> None:
        with output:
            self._take_lines(output)

    def _take_lines(self, output: IO[str]) -> None:
        for line in output:
            word, _, transaction = line.partition(" ")
            if line.endswith("\n"):  # else it was killed while it wrote
                (self._committed if word == "committed" else self._begun).append(
                    transaction.strip()
                )

    def check(self, values: list[bytes]) -> None:
        """The last transaction of each client may have been committed without its knowing."""
        read = Counter(value.decode() for value in values if not value.isdigit())
        assert set(read.values()) <= {1}
        whole = Counter(value.rsplit("/", 1)[0] for value in read)
        assert set(whole.values()) <= {IN_TRANSACTION}
        assert whole.keys() >= set(self._committed)
        assert whole.keys() <= set(self._begun)


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
        count, deadline = len(self.messages), time.monotonic() + HANG_S
        while not is_enough(self.messages):
            assert time.monotonic() < deadline, f"{count} messages were read"
            self._is_closing.wait(0.1)
            if len(self.messages) != count:
                count, deadline = len(self.messages), time.monotonic() + HANG_S

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


def _await_quiet(reader: _Reader) -> None:
    """A message that comes twice would come soon after."""
    count, deadline = len(reader.messages), time.monotonic() + QUIET_S
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if len(reader.messages) != count:
            count, deadline = len(reader.messages), time.monotonic() + QUIET_S
