"""Batches on their way to the cluster: many partitions at once, each in its order, bounded bytes.

Filled by a task's thread, emptied on the loop's. Invariant: a partition has one batch in flight, so
that sending one again never puts it behind a later one.
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
# How one batch gets into the log: alone, or as a part of a transaction.
ProduceBatch = Callable[[ClusterClient, TopicPartition, Buffer], Awaitable[Produced]]


def produce_without_transaction(*, acks: int, timeout_ms: int) -> ProduceBatch:
    return lambda client, partition, batch: client.produce(
        partition, batch, acks=acks, timeout_ms=timeout_ms
    )


class _Parcel(NamedTuple):
    batch: Buffer
    size: int
    records: int


class BatchSender:
    """`send`, then `flush`: only then is everything acknowledged. Owned by one task."""

    def __init__(
        self, client: BlockingClient, produce: ProduceBatch, *, timeout_ms: int, most_bytes: int
    ) -> None:
        """`timeout_ms` is what `produce` takes at most."""
        self._client = client
        self._produce = produce
        self._timeout_ms = timeout_ms
        self._most_bytes = most_bytes
        # Guards all that follows; told whenever a batch is acknowledged, or none will be any more.
        self._changed = threading.Condition()
        self._waiting: dict[TopicPartition, deque[_Parcel]] = {}  # a key: its sender runs
        self._bytes = 0  # sent and not yet acknowledged
        self._failure: Exception | None = None  # the first; nothing is sent after it
        self._end_offsets: dict[TopicPartition, int] = {}

    @property
    def in_flight_bytes(self) -> int:
        """Given to `send` and not yet acknowledged."""
        return self._bytes

    @property
    def end_offsets(self) -> Mapping[TopicPartition, int]:
        """Of the partitions written to, one past the last record; after `flush`."""
        return self._end_offsets

    def send(self, partition: TopicPartition, batch: Buffer, records: int) -> None:
        """Waits while too much is on its way. What failed before is raised here."""
        size = len(batch)
        with self._changed:
            while self._bytes and self._bytes + size > self._most_bytes:
                self._wait()
            self._check()
            self._bytes += size
            is_running = partition in self._waiting
            self._waiting.setdefault(partition, deque()).append(_Parcel(batch, size, records))
        if not is_running:
            self._client.start(lambda client: self._send_all(client, partition))

    def flush(self) -> None:
        """Returns when every batch is acknowledged, or raises."""
        with self._changed:
            while self._bytes:
                self._wait()
            self._check()

    def give_up(self) -> None:
        """Nothing more is sent; what is in flight may still be written."""
        self._fail(SparkSourceError("the task has ended before its rows were written"))

    def _wait(self) -> None:
        """Within a batch's time something is acknowledged or fails, unless the loop hangs."""
        self._check()
        if not self._changed.wait((self._timeout_ms + _GRACE_MS) / 1000):
            raise SparkSourceError(
                f"{self._bytes} bytes were sent, and for {self._timeout_ms / 1000:g} s nothing was "
                "heard of them; is this machine overloaded?"
            )

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # On the loop's thread.

    async def _send_all(self, client: ClusterClient, partition: TopicPartition) -> None:
        """One batch after the other, until none waits."""
        try:
            while (parcel := self._next(partition)) is not None:
                sent = await self._produce(client, partition, parcel.batch)
                self._acknowledge(partition, parcel, sent.base_offset)
        except ClientError as error:
            self._fail(_explained(error))
        except BaseException as error:
            self._fail(SparkSourceError(f"writing to {partition} broke off: {error!r}"))
            raise

    def _next(self, partition: TopicPartition) -> _Parcel | None:
        with self._changed:
            queue = self._waiting.get(partition)
            if queue and self._failure is None:
                return queue.popleft()
            self._waiting.pop(partition, None)
            return None

    def _acknowledge(self, partition: TopicPartition, parcel: _Parcel, base_offset: int) -> None:
        with self._changed:
            self._bytes -= parcel.size
            if base_offset >= 0:
                self._end_offsets[partition] = base_offset + parcel.records
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._waiting.clear()
            self._changed.notify_all()


def _explained(error: ClientError) -> Exception:
    if isinstance(error, RefusedByBroker) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
        return SparkSourceError(
            f"{error}; let the topic take larger ones (its setting max.message.bytes), or, where "
            "not a single record is that large, write smaller batches (option kafka.batch.size)"
        )
    return error
