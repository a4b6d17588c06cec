"""Sends batches to the cluster: many partitions at once, each in order, with bounded memory.

Filled by a task's thread, drained on the event loop's. Invariant: a partition has at most one batch
in flight, so that a retry never puts it behind a later one.
"""

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import Produced
from penstock.client.errors import ClientError, RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.errors import SparkSourceError

_GRACE_MS = 10_000
# How one batch is produced: without a transaction, or as part of one.
ProduceBatch = Callable[[ClusterClient, TopicPartition, Buffer], Awaitable[Produced]]


def produce_without_transaction(*, acks: int, timeout_ms: int) -> ProduceBatch:
    return lambda client, tp, batch: client.produce(tp, batch, acks=acks, timeout_ms=timeout_ms)


class _QueuedBatch(NamedTuple):
    batch: Buffer
    size: int
    records: int


class BatchSender:
    """`send`, then `flush`, which returns when everything is acknowledged. Owned by one task."""

    def __init__(
        self, client: BlockingClient, produce: ProduceBatch, *, timeout_ms: int, max_bytes: int
    ) -> None:
        """`timeout_ms` is the longest that `produce` takes."""
        self._client = client
        self._produce = produce
        self._timeout_ms = timeout_ms
        self._max_bytes = max_bytes
        # Guards the fields below; notified on every acknowledgement and on failure.
        self._changed = threading.Condition()
        self._queues: dict[TopicPartition, deque[_QueuedBatch]] = {}  # a key means: its sender runs
        self._bytes = 0  # in flight or queued
        self._failure: Exception | None = None  # the first one; nothing is sent after it
        self._end_offsets: dict[TopicPartition, int] = {}

    @property
    def in_flight_bytes(self) -> int:
        """Passed to `send` and not yet acknowledged."""
        return self._bytes

    @property
    def end_offsets(self) -> Mapping[TopicPartition, int]:
        """One past the last record of each partition written to; complete after `flush`."""
        return self._end_offsets

    def send(self, tp: TopicPartition, batch: Buffer, records: int) -> None:
        """Blocks while too many bytes are in flight. Raises an earlier failure."""
        size = len(batch)
        with self._changed:
            while self._bytes and self._bytes + size > self._max_bytes:
                self._wait()
            self._check()
            self._bytes += size
            is_running = tp in self._queues
            self._queues.setdefault(tp, deque()).append(_QueuedBatch(batch, size, records))
        if not is_running:
            self._client.start(lambda client: self._send_all(client, tp))

    def flush(self) -> None:
        """Returns when every batch is acknowledged, or raises."""
        with self._changed:
            while self._bytes:
                self._wait()
            self._check()

    def cancel(self) -> None:
        """Stop sending; batches in flight may still be written."""
        self._fail(SparkSourceError("the task ended before its rows were written"))

    def _wait(self) -> None:
        """A batch is acknowledged or fails within its timeout, unless the event loop hangs."""
        self._check()
        if not self._changed.wait((self._timeout_ms + _GRACE_MS) / 1000):
            raise SparkSourceError(
                f"{self._bytes} bytes were sent, and none was acknowledged within "
                f"{self._timeout_ms / 1000:g} s; is this machine overloaded?"
            )

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # On the event loop's thread.

    async def _send_all(self, client: ClusterClient, tp: TopicPartition) -> None:
        """One batch after the other, until the queue is empty."""
        try:
            while (queued := self._next(tp)) is not None:
                sent = await self._produce(client, tp, queued.batch)
                self._acknowledge(tp, queued, sent.base_offset)
        except ClientError as error:
            self._fail(_explain(error))
        except BaseException as error:
            self._fail(SparkSourceError(f"writing to {tp} failed: {error!r}"))
            raise

    def _next(self, tp: TopicPartition) -> _QueuedBatch | None:
        with self._changed:
            queue = self._queues.get(tp)
            if queue and self._failure is None:
                return queue.popleft()
            self._queues.pop(tp, None)
            return None

    def _acknowledge(self, tp: TopicPartition, queued: _QueuedBatch, base_offset: int) -> None:
        with self._changed:
            self._bytes -= queued.size
            if base_offset >= 0:
                self._end_offsets[tp] = base_offset + queued.records
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._queues.clear()
            self._changed.notify_all()


def _explain(error: ClientError) -> Exception:
    if isinstance(error, RefusedByBroker) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
        return SparkSourceError(
            f"{error}; raise the topic's max.message.bytes, or, if no single record is that "
            "large, write smaller batches (option kafka.batch.size)"
        )
    return error
