"""Watches from outside, with librdkafka, how far read_committed consumers are behind."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_POLL_S = 0.5
_REQUEST_TIMEOUT_S = 30


class Sample(NamedTuple):
    at_s: float
    partition: int
    last_stable_offset: int
    high_watermark: int


class StableOffsetWatch:
    """Samples a topic on a thread while the context is open."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.samples: list[Sample] = []
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._latest = {
            TopicPartition(topic, number): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for number in range(partitions)
        }
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stable offsets", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join(2 * _REQUEST_TIMEOUT_S)

    def longest_hold_s(self) -> float:
        """The longest time for which a written offset was not yet stable."""
        return max(
            (longest_hold_s(samples) for samples in self._by_partition().values()), default=0.0
        )

    def _by_partition(self) -> dict[int, list[Sample]]:
        samples: dict[int, list[Sample]] = {}
        for sample in self.samples:
            samples.setdefault(sample.partition, []).append(sample)
        return samples

    def _run(self) -> None:
        while not self._is_over.wait(_POLL_S):
            at_s = time.monotonic()
            # In this order: what is written in between must not look unstable.
            try:
                ends = self._list(IsolationLevel.READ_UNCOMMITTED)
                stable = self._list(IsolationLevel.READ_COMMITTED)
            except KafkaException:
                continue  # the next sample covers the time since the last one
            self.samples += [
                Sample(at_s, partition, stable[partition], end) for partition, end in ends.items()
            ]

    def _list(self, isolation: IsolationLevel) -> dict[int, int]:
        futures = self._admin.list_offsets(
            self._latest, isolation_level=isolation, request_timeout=_REQUEST_TIMEOUT_S
        )
        return {tp.partition: future.result().offset for tp, future in futures.items()}


def longest_hold_s(samples: list[Sample]) -> float:
    """How long after it was seen to be written the slowest offset became stable; what is unstable
    at the last sample counts until then."""
    longest, waiting = 0.0, 0  # samples[waiting] is the first whose end is not stable yet
    for sample in samples:
        while samples[waiting].high_watermark <= sample.last_stable_offset:
            longest = max(longest, sample.at_s - samples[waiting].at_s)
            if samples[waiting] is sample:
                break
            waiting += 1
        longest = max(longest, sample.at_s - samples[waiting].at_s)
    return longest


def count_committed(servers: str, topic: str, *, wanted: int, timeout_s: float) -> Counter[bytes]:
    """How often each value is visible to a read_committed consumer, once `wanted` values are and
    the consumer has reached the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"count-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    counts: Counter[bytes] = Counter()
    deadline = time.monotonic() + timeout_s
    try:
        consumer.subscribe([topic])
        while len(counts) < wanted:
            assert time.monotonic() < deadline, f"{len(counts)} of {wanted} values are visible"
            counts.update(_values(consumer, 1.0))
        while values := _values(consumer, 3.0):
            counts.update(values)
    finally:
        consumer.close()
    return counts


def _values(consumer: Consumer, timeout_s: float) -> list[bytes]:
    messages = consumer.consume(10_000, timeout_s)
    return [bytes(message.value() or b"") for message in messages if message.error() is None]
