"""`penstock.Producer`: a typed wrapper of librdkafka's producer, which batches, retries and orders.

Invariant: every future that `send` returned is completed, at the latest by `close`.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from confluent_kafka import KafkaException
from confluent_kafka import Producer as RdKafkaProducer

from penstock.client.errors import (
    ClientClosed,
    FlushTimedOut,
    QueueFull,
    SendFailed,
    SendTimedOut,
)
from penstock.client.message import RecordMetadata
from penstock.client.partition_counts import PartitionCounts
from penstock.client.partitioners import (
    BY_HASH,
    Chooser,
    CustomPartitioner,
    HashOrRoundRobin,
    HasPartition,
    Partitioner,
    RoundRobin,
    Sticky,
)
from penstock.client.rdkafka import (
    DEFAULT_METADATA_MAX_AGE_MS,
    Trouble,
    common_settings,
    find_code,
    metadata_settings,
    refresh_interval_s,
    settings_checked,
)
from penstock.client.record_delays import with_delay
from penstock.client.security.properties import parse_client_security

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as RdKafkaMessage

    from penstock.client.canceller import Canceller
    from penstock.client.delayed_topics import DelayedTopics

Data = bytes | str | None
Acks = Literal[0, 1, -1, "0", "1", "all"]
PartitionerName = Literal["hash", "hash_or_round_robin", "round_robin", "sticky"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
HeadersGiven = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

_POLL_S = 0.1
# librdkafka takes the GIL once per delivered record. On a thread beside a busy sender, each
# acquisition may wait for the switch interval (5 ms); on the sender's thread it is nearly free. So
# a busy sender polls deliveries itself, every so many records, and the thread polls for an idle
# one.
_SENDS_PER_POLL = 64
_BUSY_PAUSE_S = 0.01
_NO_OFFSET = -1


class Producer:
    """Sends records. Any thread may use it; `close` it, or use it in a `with`.

    partitioner: "hash" (of the key, as in Java's clients; without a key, one partition per batch),
    "hash_or_round_robin" (the same, but without a key one partition after the other),
    "round_robin", "sticky" (one partition per batch regardless of the key), a function (key, value,
    number of partitions) -> partition, or an object or class with such a method `partition`. Unless
    disabled, a producer with acks="all" is idempotent: retries neither duplicate nor reorder
    records.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        partitioner: PartitionerName | Chooser | HasPartition | type[HasPartition] = "hash",
        acks: Acks = "all",
        idempotent: bool | None = None,
        compression: Compression = "none",
        linger_ms: float = 5,
        batch_size: int = 1_000_000,
        retries: int = 2_147_483_647,
        retry_interval_ms: int = 100,
        delivery_timeout_ms: int = 120_000,
        max_block_ms: int = 60_000,
        metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
        max_queued_messages: int = 100_000,
        client_id: str = "penstock-producer",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`max_block_ms`: how long `send` waits while the queue is full. `metadata_max_age_ms`: how
        soon partitions that are added to a topic are used. `config`: librdkafka settings under
        their own names, such as security.protocol; those of security also under Java's."""
        if acks not in _ACKS:
            raise ValueError(f"acks {acks!r} does not exist: use 0, 1 or 'all'")
        acks_number = _ACKS[acks]
        if idempotent is None:
            idempotent = acks_number == -1 and retries > 0
        self._trouble = Trouble(bootstrap_servers)
        settings = {
            "acks": acks_number,
            "enable.idempotence": idempotent,
            "compression.type": compression,
            "linger.ms": linger_ms,
            "batch.size": batch_size,
            "message.send.max.retries": retries,
            "retry.backoff.ms": retry_interval_ms,
            "message.timeout.ms": delivery_timeout_ms,
            "queue.buffering.max.messages": max_queued_messages,
            "partitioner": "murmur2_random",
            **metadata_settings(metadata_max_age_ms, config or {}),
            **(config or {}),
        }
        # Otherwise the interval doubles from one retry to the next, up to a second.
        settings.setdefault("retry.backoff.max.ms", settings["retry.backoff.ms"])
        settings = common_settings(client_id, self._trouble, settings)
        self._security = parse_client_security(settings)
        with settings_checked():
            self._producer = RdKafkaProducer(settings)
        self._max_block_s = max_block_ms / 1000
        self._make_partitioner = _find_factory(partitioner, batch_size)
        self._partitioners: dict[str, Partitioner] = {}
        self._counts = PartitionCounts(
            self._producer.list_topics,
            self._trouble,
            refresh_every_s=refresh_interval_s(settings),
        )
        self._sends = 0
        self._is_closed = False
        self._canceller: Canceller | None = None  # made by the first cancel
        self._delayed_topics: DelayedTopics | None = None  # made by the first record with a delay
        self._config = dict(config or {})
        self._stopping = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="penstock producer", daemon=True)
        self._poller.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """Records that are queued or in flight."""
        return len(self._producer)

    def send(
        self,
        topic: str,
        value: Data = None,
        *,
        key: Data = None,
        partition: int | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
        deliver_at: datetime | None = None,
        delay_s: float | None = None,
        delay_id: str | None = None,
    ) -> "Future[RecordMetadata]":
        """Queue a record and return at once, or as soon as the queue has space.

        The future's result is the record's metadata, or SendFailed. With acks=0 it only says that
        the record was sent.

        With `deliver_at` (without a zone it is local time) or `delay_s` consumers get the record
        then. Its metadata has no offset. By `delay_id` it can be cancelled, or replaced by another
        record. The topic has penstock.delayed.messages=true: the first of these records to a topic
        waits until that is looked up, and InvalidConfig is raised if it is not so, because the
        record would be delivered at once.
        """
        self._check_open()
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        if partition is None:
            partition = self._choose(topic, key, value) if self._make_partitioner else BY_HASH
        all_headers = with_delay(headers, deliver_at=deliver_at, delay_s=delay_s, delay_id=delay_id)
        if deliver_at is not None or delay_s is not None:
            self._check_takes_delays(topic)
        # librdkafka counts from the batch's offset, also where that says that there is none.
        has_offset = deliver_at is None and delay_s is None
        future = _Delivery()
        self._produce(
            topic,
            value,
            key,
            partition,
            on_delivery=partial(self._on_delivery, future, has_offset),
            timestamp=timestamp_ms or 0,
            headers=all_headers,
        )
        return future

    def send_and_wait(
        self,
        topic: str,
        value: Data = None,
        *,
        key: Data = None,
        partition: int | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
        deliver_at: datetime | None = None,
        delay_s: float | None = None,
        delay_id: str | None = None,
        timeout_s: float | None = None,
    ) -> RecordMetadata:
        """Send and wait until it is stored; SendFailed says why it was not. SendTimedOut, after
        `timeout_s`, leaves that open: the record stays queued until delivery_timeout_ms."""
        future = self.send(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            deliver_at=deliver_at,
            delay_s=delay_s,
            delay_id=delay_id,
        )
        try:
            return future.result(timeout_s)
        except TimeoutError:
            text = f"a record for topic {topic!r} is not acknowledged after {timeout_s:g} s"
            raise SendTimedOut(
                self._trouble.explain(f"{text}; it stays queued and may still be stored")
            ) from None

    def cancel(
        self, topic: str, delay_id: str, *, timeout_s: float = 30
    ) -> Literal["cancelled", "delivered", "unknown"]:
        """Take back the delayed record of this id, whoever sent it: "cancelled" is never delivered,
        "delivered" was, or cannot be held back any more, and no record of an "unknown" id waits.

        Records that this producer has sent before are flushed first, so that it finds them.
        """
        self._check_open()
        self.flush(timeout_s)
        if self._canceller is None:
            from penstock.client.canceller import Canceller  # imports what others do not need

            self._canceller = Canceller(self._trouble.addresses, self._security)
        return self._canceller.cancel(topic, delay_id, timeout_s)

    def _check_takes_delays(self, topic: str) -> None:
        if self._delayed_topics is None:
            from penstock.client.delayed_topics import DelayedTopics  # imports what others do not

            self._delayed_topics = DelayedTopics(
                self._trouble.addresses, self._max_block_s, self._config
            )
        self._delayed_topics.check(topic)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far is delivered or has failed."""
        try:
            left = self._producer.flush(-1 if timeout_s is None else timeout_s)
        except KafkaException as error:  # a fatal one: nothing more can be sent
            text = f"records cannot be sent any more: {error.args[0].str()}"
            raise SendFailed(text, code=find_code(error.args[0])) from error
        if left:
            raise FlushTimedOut(
                self._trouble.explain(f"{left} records are not delivered after {timeout_s} s")
            )

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close. Records not delivered in time fail, and FlushTimedOut is raised."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.flush(timeout_s)
        except SendFailed:
            if len(self._producer):  # otherwise each record's future said it already
                raise
        finally:
            if len(self._producer):
                self._producer.purge()
                self._producer.flush(1)
            self._stopping.set()
            self._poller.join()
            if self._canceller is not None:
                self._canceller.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer is closed; create a new one to send more")

    def _choose(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            assert self._make_partitioner is not None
            partitioner = self._partitioners.setdefault(topic, self._make_partitioner())
        return partitioner.choose(key, value, self._counts.get(topic))

    def _produce(self, topic: str, *arguments: Any, **options: Any) -> None:
        """Hand over to librdkafka, waiting while its queue is full."""
        deadline: float | None = None
        while True:
            try:
                self._producer.produce(topic, *arguments, **options)
            except BufferError:
                if deadline is None:
                    deadline = time.monotonic() + self._max_block_s
                self._wait_room(deadline)
            except KafkaException as error:
                raise self._failed(topic, error.args[0]) from error
            else:
                break
        self._sends += 1
        if not self._sends % _SENDS_PER_POLL:
            self._serve(0)

    def _wait_room(self, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise QueueFull(
                self._trouble.explain(
                    f"{len(self._producer)} records wait to be sent, and none has left for "
                    f"{self._max_block_s:g} s; send more slowly, or raise max_queued_messages"
                )
            )
        self._serve(min(left_s, _POLL_S))
        self._check_open()

    def _poll(self) -> None:
        seen = 0
        while not self._stopping.is_set():
            sends, seen = self._sends - seen, self._sends
            if sends >= _SENDS_PER_POLL:
                self._stopping.wait(_BUSY_PAUSE_S)
            else:
                self._serve(_POLL_S)
            self._counts.refresh_if_due()

    def _serve(self, timeout_s: float) -> None:
        """Poll librdkafka for deliveries and errors. A fatal error is raised here too, and fails
        every record and later `send`."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            self._trouble.note(error.args[0])
            self._stopping.wait(timeout_s)

    def _on_delivery(
        self,
        future: "Future[RecordMetadata]",
        has_offset: bool,
        error: "KafkaError | None",
        message: "RdKafkaMessage",
    ) -> None:
        if error is not None:
            future.set_exception(self._failed(message.topic() or "?", error))
            return
        offset = message.offset() if has_offset else None
        _, timestamp_ms = message.timestamp()
        future.set_result(
            RecordMetadata(
                message.topic() or "",
                _NO_OFFSET if (partition := message.partition()) is None else partition,
                _NO_OFFSET if offset is None or offset < 0 else offset,
                timestamp_ms,
            )
        )

    def _failed(self, topic: str, error: "KafkaError") -> SendFailed:
        text = f"a record for topic {topic!r} was not sent: {error.str()}"
        code = find_code(error)
        return SendFailed(text if code else self._trouble.explain(text), code=code)


_ACKS = {0: 0, 1: 1, -1: -1, "0": 0, "1": 1, "all": -1}


def _find_factory(
    partitioner: str | Chooser | HasPartition | type[HasPartition], batch_bytes: int
) -> Callable[[], Partitioner] | None:
    """None: librdkafka chooses."""
    if not isinstance(partitioner, str):
        return partial(CustomPartitioner, _find_chooser(partitioner))
    factories: dict[str, Callable[[], Partitioner] | None] = {
        "hash": None,
        "hash_or_round_robin": HashOrRoundRobin,
        "round_robin": RoundRobin,
        "sticky": partial(Sticky, batch_bytes),
    }
    if partitioner not in factories:
        raise ValueError(
            f"no partitioner is named {partitioner!r}: use {', '.join(factories)}, a function, or "
            f"an object with a method partition(key, value, partitions)"
        )
    return factories[partitioner]


def _find_chooser(partitioner: Chooser | HasPartition | type[HasPartition]) -> Chooser:
    """A class stands for one object of it, as the name of a class does in Kafka's settings."""
    chosen = partitioner() if isinstance(partitioner, type) else partitioner
    choose = getattr(chosen, "partition", chosen)
    if not callable(choose):
        raise ValueError(
            f"{partitioner!r} is no partitioner: give a name, a function, or an object with a "
            "method partition(key, value, partitions)"
        )
    return cast("Chooser", choose)


class _Delivery(Future[RecordMetadata]):
    """The future of a record, which cannot be cancelled."""

    def cancel(self) -> bool:
        return False
