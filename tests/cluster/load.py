"""Load during faults: numbers sent by an idempotent producer and read by a consumer group.

Records what was acknowledged and committed, so that a test can check it at the end.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.testing import Cluster

PARTITIONS = 3
GROUP = "readers"
_TIMEOUT_S = 180.0
_MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class Load:
    """Sends and reads from the start until `stop`."""

    def __init__(self, cluster: Cluster, topic: str, *, rate: int = 150) -> None:
        self.topic = topic
        self.committed: dict[int, int] = {}  # partition -> the last offset whose commit succeeded
        self._clients: dict[str, Any] = {
            **cluster.client_config,
            "log_level": 0,
            "error_cb": self._note_disconnect,
        }
        self.disconnects: list[str] = []  # what the clients have heard of their connections
        self._pause_s = 1 / rate
        self._acknowledged: list[tuple[float, int]] = []  # time and number of each
        self._failed: list[str] = []
        self._read_by_group: set[int] = set()
        self._stop = threading.Event()
        self._producer = Producer(
            {
                **self._clients,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "delivery.timeout.ms": 120_000,
            }
        )
        # Daemons: a test that fails before `stop` must not keep the run from ending.
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._send, self._read)
        ]
        for thread in self._threads:
            thread.start()

    # -- sending ---------------------------------------------------------------------------

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(
                self.topic,
                str(number),
                partition=number % PARTITIONS,
                on_delivery=partial(self._note, number),
            )
            number += 1
            self._producer.poll(self._pause_s)
        assert self._producer.flush(_TIMEOUT_S) == 0

    def _note(self, number: int, error: Any, _: Any) -> None:
        if error is None:
            self._acknowledged.append((time.monotonic(), number))
        else:
            self._failed.append(f"{number}: {error}")

    def _note_disconnect(self, error: Any) -> None:
        self.disconnects.append(str(error))

    @property
    def acknowledged(self) -> list[int]:
        return [number for _, number in self._acknowledged]

    def wait_acknowledged(self, more: int = 100) -> None:
        """Waits until this many more records are acknowledged; on timeout the message has the
        errors."""
        wanted = len(self._acknowledged) + more
        deadline = time.monotonic() + _TIMEOUT_S
        while len(self._acknowledged) < wanted:
            assert time.monotonic() < deadline, f"no progress; failed: {self._failed[:3]}"
            time.sleep(0.01)

    def wait_every_partition_acknowledges(self, since: float) -> float:
        """Waits until each partition has acknowledged a record since then; returns the seconds that
        took."""
        deadline = time.monotonic() + _TIMEOUT_S
        while len(first := self._first_since(since)) < PARTITIONS:
            assert time.monotonic() < deadline, f"only {sorted(first)} answer: {self._failed[:3]}"
            time.sleep(0.01)
        return max(first.values()) - since

    def _first_since(self, since: float) -> dict[int, float]:
        first = {}
        for when, number in reversed(self._acknowledged):
            if when < since:
                break
            first[number % PARTITIONS] = when
        return first

    def longest_silence_s(self, since: float) -> float:
        """The longest time between two acknowledgements of any partition."""
        times: dict[int, list[float]] = {number: [since] for number in range(PARTITIONS)}
        for when, number in list(self._acknowledged):
            if when >= since:
                times[number % PARTITIONS].append(when)
        return max(
            after - before for moments in times.values() for before, after in pairwise(moments)
        )

    # -- reading ---------------------------------------------------------------------------

    def _read(self) -> None:
        consumer = Consumer(
            {
                **self._clients,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
            }
        )
        consumer.subscribe([self.topic])
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._note_read(message)
                self._commit_sometimes(consumer, message)
        consumer.close()

    def _note_read(self, message: Any) -> None:
        if message.partition() < PARTITIONS:  # records of other partitions are not from this load
            self._read_by_group.add(int(message.value()))

    def _commit_sometimes(self, consumer: Consumer, message: Any) -> None:
        """Every 50th record, and each one until the partition has a commit that can be lost."""
        if message.offset() % 50 and message.partition() in self.committed:
            return
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException:
            return  # commits may fail during faults
        self.committed[message.partition()] = message.offset() + 1

    # -- afterwards ------------------------------------------------------------------------

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT_S)
        assert not any(thread.is_alive() for thread in self._threads)

    def check(self) -> None:
        """Checks that no acknowledged or committed record is lost or duplicated, that all are in
        order, and that the group has skipped none."""
        assert self._failed == []
        stored = self.read_all()
        for partition, numbers in stored.items():
            assert numbers == sorted(set(numbers)), f"partition {partition}: doubled or unordered"
            wanted = {number for number in self.acknowledged if number % PARTITIONS == partition}
            assert wanted <= set(numbers), f"lost: {sorted(wanted - set(numbers))[:5]}"
        for partition, offset in self._read_committed().items():
            wanted_offset = self.committed.get(partition)  # None: every commit failed
            assert wanted_offset is None or offset >= wanted_offset, (
                f"{partition}: {wanted_offset} was committed, {offset} is read"
            )
            passed = set(stored[partition][: max(0, offset)])
            assert passed <= self._read_by_group, f"partition {partition}: the group missed some"

    def read_all(self) -> dict[int, list[int]]:
        reader = Consumer({**self._clients, "group.id": "check"})
        values: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        ends = {}
        for number in range(PARTITIONS):
            _, ends[number] = reader.get_watermark_offsets(
                TopicPartition(self.topic, number), timeout=_TIMEOUT_S
            )
        reader.assign([TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)])
        deadline = time.monotonic() + _TIMEOUT_S
        while any(len(values[end]) < ends[end] for end in ends):
            assert time.monotonic() < deadline, f"read {values.keys()} up to {ends}"
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                values[partition].append(int(value))
        reader.close()
        return values

    def _read_committed(self) -> dict[int, int]:
        reader = Consumer({**self._clients, "group.id": GROUP})
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        answers = _ask_coordinator(lambda: reader.committed(places, timeout=_TIMEOUT_S))
        reader.close()
        for answer in answers:
            assert answer.error is None, f"commit of {answer.partition}: {answer.error}"
        return {answer.partition: answer.offset for answer in answers}


def _ask_coordinator(
    read: Callable[[], list[TopicPartition]],
) -> list[TopicPartition]:
    """The coordinator may still move after the last fault; librdkafka leaves that to its caller."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return read()
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
