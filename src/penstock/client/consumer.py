"""`penstock.Consumer`: a typed wrapper of librdkafka's consumer; iterate it to get messages.

Invariant: an offset is stored for committing only after the program has asked for the next message,
so that a message whose processing failed is read again.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from confluent_kafka import Consumer as RdKafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Place

from penstock.client.answering_leaders import check_leaders
from penstock.client.damaged_batches import DamagedBatches, describe_damage
from penstock.client.errors import BrokersUnreachable, ClientClosed, ConsumeFailed
from penstock.client.message import Message
from penstock.client.rdkafka import (
    DEFAULT_METADATA_MAX_AGE_MS,
    LOG,
    LocalCode,
    Trouble,
    common_settings,
    find_code,
    metadata_settings,
    refresh_interval_s,
    settings_checked,
)
from penstock.client.whole_topics import WholeTopics
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as RdKafkaMessage

_SLICE_S = 0.1  # upper bound of a poll, for which another thread's `close` may wait
_MAX_BUFFERED = 500
_STORE_EVERY_S = 1.0
_NO_GROUP = "penstock-without-group"  # librdkafka requires a group id; this one is never joined
_SEEK_TIMEOUT_S = 10.0
_REACH_AGAIN_S = 2.0  # for an answer of any broker while librdkafka reports connection errors


class Consumer:
    """Reads topics; iterate it, or call `poll_batch`. One thread reads; any thread may `close` it.

    With a group, its members share the partitions and offsets are committed: automatically, or with
    auto_commit=False when you call `commit`. Without a group it reads every partition of the
    topics, from the end or the beginning, and commits nothing.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        bootstrap_servers: str,
        group: str | None = None,
        from_beginning: bool = False,
        auto_commit: bool = True,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_s: float | None = None,
        assignor: Literal["uniform", "range", "ceil-range"] | None = None,
        metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
        connect_timeout_s: float = 10.0,
        client_id: str = "penstock-consumer",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`timeout_s`: iteration ends after this long without a message, if a broker answers then;
        None waits forever. `connect_timeout_s`: how long a broker may take to answer at all, and
        its group to assign partitions, before `timeout_s` begins.
        `metadata_max_age_ms`: how soon partitions that are added to a topic are read.
        `from_beginning`: applies where a group has no committed offset, and always without a group.
        `assignor`: how the broker shares partitions in this group, by the consumer protocol
        (KIP-848); "ceil-range" rounds each share of a topic up. `config`: librdkafka settings under
        their own names."""
        self.topics = [topics] if isinstance(topics, str) else list(topics)
        if not self.topics:
            raise ValueError("a consumer needs a topic to read; name at least one")
        self.group = group
        self._from_beginning = from_beginning
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._trouble = Trouble(bootstrap_servers)
        settings = {
            "group.id": group or _NO_GROUP,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
            "enable.auto.commit": auto_commit and group is not None,
            "enable.auto.offset.store": False,
            "isolation.level": isolation,
            **_assignor_settings(assignor, group),
            **metadata_settings(metadata_max_age_ms, config or {}),
            **(config or {}),
        }
        settings = common_settings(client_id, self._trouble, settings)
        with settings_checked():
            self._consumer = RdKafkaConsumer(settings)
        self._lock = threading.RLock()  # librdkafka's consumer is used by one thread at a time
        self._closing = threading.Event()
        self._closed = False
        self._buffer: deque[RdKafkaMessage] = deque()  # fetched, not returned yet
        self._current: tuple[TopicPartition, int] | None = None  # returned, maybe in process
        self._done: dict[TopicPartition, int] = {}  # next offsets, not stored yet
        self._reached: dict[TopicPartition, int] = {}  # next offsets of every partition read here
        self._failure: ConsumeFailed | None = None  # raised once the buffer is empty
        self._stored_at = time.monotonic()
        self._whole: WholeTopics | None = None
        self._is_joining = group is not None  # has no partitions yet
        self._damaged = DamagedBatches(
            self._consumer, settings, self._start_of, has_group=group is not None
        )
        try:
            if group is None:
                self._whole = WholeTopics(
                    self._consumer,
                    self.topics,
                    from_beginning=from_beginning,
                    look_every_s=refresh_interval_s(settings),
                    timeout_s=connect_timeout_s,
                )
            else:
                self._consumer.subscribe(
                    self.topics,
                    on_assign=self._on_assign,
                    on_revoke=self._on_revoke,
                    on_lost=self._on_revoke,
                )
        except KafkaException as error:
            self._consumer.close()
            raise self._failed(error.args[0]) from error
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            with self._lock:
                self._current = None  # its processing failed, so it must be read again
        self.close()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        self.wait_for_assignment()
        message = self._read_one(self._timeout_s)
        if message is not None:
            return message
        with suppress(ClientClosed):  # by another thread: the iteration ends
            self.check_reachable()
        raise StopIteration

    def poll_batch(self, max_messages: int, timeout_s: float | None = None) -> list[Message]:
        """Return up to `max_messages`; waits only for the first one. Empty after the timeout, or
        when the consumer was closed meanwhile. While no broker can be reached it is empty, too,
        so that a loop outlasts a restart; `check_reachable` tells them apart."""
        first = self._read_one(timeout_s)
        if first is None:
            return []
        messages = [first]
        with self._lock:
            while len(messages) < max_messages:
                if not self._buffer:
                    self._fill(0, max_messages - len(messages))
                if not self._buffer:
                    break
                messages.append(self._next_buffered())
        return messages

    def wait_for_assignment(self) -> None:
        """Wait until the group has assigned partitions for the first time, at most
        `connect_timeout_s`: until then its topics look empty, whatever they hold."""
        deadline = time.monotonic() + self._connect_timeout_s
        while self._is_joining and not self._closing.is_set():
            with self._lock:
                if self._closed or self._buffer:
                    return
                self._fill(_SLICE_S, _MAX_BUFFERED)
            if self._trouble.last is not None or time.monotonic() > deadline:
                return

    def check_reachable(self) -> None:
        """Raise BrokersUnreachable unless a broker answers and so does the leader of every
        partition read here. ConsumeFailed if a partition has no leader, the group has assigned
        none yet, or a damaged batch is the reason why nothing comes."""
        with self._lock:
            self._check_open()
            is_down = self._trouble.last is not None
            timeout_s = min(self._connect_timeout_s, _REACH_AGAIN_S if is_down else math.inf)
            try:
                self._consumer.list_topics(self.topics[0], timeout=timeout_s)
            except KafkaException as error:
                text = f"cannot read {', '.join(self.topics)}: no broker answers within"
                raise BrokersUnreachable(
                    self._trouble.explain(f"{text} {timeout_s:g} s: {error.args[0].str()}")
                ) from error
            if self._is_joining:
                raise ConsumeFailed(
                    f"cannot read {', '.join(self.topics)}: group {self.group!r} has assigned no "
                    "partitions yet; allow more time, or look at `penstock group describe`"
                )
            check_leaders(self._consumer, timeout_s, self._trouble.explain)
            self._trouble.clear()
            self._damaged.look(timeout_s)

    def commit(self) -> None:
        """Commit every message returned so far, and wait for the response."""
        if self.group is None:
            raise ConsumeFailed("a consumer without a group has nowhere to commit to; name a group")
        with self._lock:
            self._check_open()
            self._store()
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() != LocalCode.NO_OFFSET:  # nothing new to commit
                    raise self._failed(error.args[0]) from error

    def reached(self) -> dict[TopicPartition, int]:
        """The next offset of each partition read here, after the messages returned so far: what
        `commit` would commit, and what a transaction takes."""
        with self._lock:
            self._check_open()
            self._finish_current()
            return dict(self._reached)

    def group_metadata(self) -> Any:
        """This member's group metadata, for `TransactionalProducer.send_offsets`."""
        if self.group is None:
            raise ConsumeFailed("a consumer without a group has no offsets to commit; name a group")
        return self._consumer.consumer_group_metadata()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads at the moment."""
        with self._lock:
            self._check_open()
            return {
                TopicPartition(assigned.topic, assigned.partition) for assigned in self._assigned()
            }

    def seek(self, partition: int, offset: int, *, topic: str | None = None) -> None:
        """Continue at this offset. `topic` may be omitted if there is only one."""
        with self._lock:
            self._check_open()
            self._seek([Place(self._get_topic(topic), partition, offset)])

    def seek_to_time(self, timestamp_ms: int, *, topic: str | None = None) -> None:
        """Continue, in every partition, at the first message at or after this time, or at the end
        if there is none."""
        with self._lock:
            self._check_open()
            positions = [
                Place(assigned.topic, assigned.partition, timestamp_ms)
                for assigned in self._assigned()
                if topic is None or assigned.topic == topic
            ]
            try:
                positions = self._consumer.offsets_for_times(positions, timeout=_SEEK_TIMEOUT_S)
                self._seek(
                    [
                        self._at_end(position) if position.offset < 0 else position
                        for position in positions
                    ]
                )
            except KafkaException as error:
                raise self._failed(error.args[0]) from error

    def close(self) -> None:
        """Stop reading, from this thread or another; with auto_commit, returned messages are
        committed."""
        self._closing.set()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._buffer.clear()
            self._store()
            self._consumer.close()

    # Reading.

    def _read_one(self, timeout_s: float | None) -> Message | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._closing.is_set():
            left_s = _SLICE_S if deadline is None else deadline - time.monotonic()
            with self._lock:
                if self._closed:
                    return None
                if not self._buffer:
                    self._fill(max(0.0, min(left_s, _SLICE_S)), _MAX_BUFFERED)
                if self._buffer:
                    return self._next_buffered()
            if left_s <= 0:
                return None
        return None

    def _fill(self, timeout_s: float, max_messages: int) -> None:
        """Fetch what is available; waits only for the first message. The buffer is empty before, so
        a rebalance that librdkafka reports from here cannot drop messages of the program."""
        if timeout_s:
            self._store()
            if self._whole is not None:
                self._whole.look_if_due()
        self._raise_failure()
        first = self._consumer.poll(timeout_s)
        if first is None:
            if timeout_s:
                self._damaged.look_if_due()
            return
        self._take(first)
        for message in self._consumer.consume(max_messages, 0):
            self._take(message)
        if self._buffer:
            self._trouble.clear()
            self._damaged.note_progress()
        else:
            self._raise_failure()

    def _raise_failure(self) -> None:
        """Raised after the messages that came before the failure, so that none is lost."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _take(self, message: "RdKafkaMessage") -> None:
        error = message.error()
        if error is None:
            self._buffer.append(message)
        elif error.retriable() or error.code() in PASSING_CODES:
            self._trouble.note(error)
            LOG.warning("reading %s: %s", self.topics, error)
        elif error.code() in DAMAGE_CODES:
            tp = TopicPartition(str(message.topic()), int(message.partition() or 0))
            text = describe_damage(tp, int(message.offset() or 0), error.str())
            self._failure = ConsumeFailed(text)
        else:
            self._failure = self._failed(error)

    def _next_buffered(self) -> Message:
        self._finish_current()
        raw = self._buffer.popleft()
        message = read_message(raw)
        self._current = TopicPartition(message.topic, message.partition), message.offset + 1
        if time.monotonic() - self._stored_at > _STORE_EVERY_S:
            self._store_done()
        return message

    # Offsets.

    def _finish_current(self) -> None:
        """Asking for the next message means that the current one is processed."""
        if self._current is not None:
            partition, next_offset = self._current
            self._done[partition] = self._reached[partition] = next_offset
            self._current = None

    def _store(self) -> None:
        self._finish_current()
        self._store_done()

    def _store_done(self) -> None:
        self._stored_at = time.monotonic()
        done, self._done = self._done, {}
        if not done or self.group is None:
            return
        try:
            self._consumer.store_offsets(
                offsets=[Place(*partition, offset) for partition, offset in done.items()]
            )
        except KafkaException as error:
            # Another member owns the partition now and starts at the committed offset.
            if error.args[0].code() not in (LocalCode.STATE, LocalCode.UNKNOWN_PARTITION):
                raise self._failed(error.args[0]) from error

    def _on_assign(self, _: object, __: list[Place]) -> None:
        """Called within a poll."""
        self._is_joining = False

    def _on_revoke(self, _: object, positions: list[Place]) -> None:
        """Called within a poll. Messages fetched ahead belong to the partitions' next owners."""
        gone = {(position.topic, position.partition) for position in positions}
        self._buffer = deque(
            message
            for message in self._buffer
            if (message.topic(), message.partition()) not in gone
        )
        self._done = {tp: offset for tp, offset in self._done.items() if tp not in gone}
        self._reached = {tp: offset for tp, offset in self._reached.items() if tp not in gone}

    def _start_of(self, tp: TopicPartition) -> int:
        """Where reading of a partition began of which nothing has come, unless the group has
        committed an offset; negative: unknown."""
        if self._whole is not None:
            return self._whole.start_of(tp)
        low, _ = self._consumer.get_watermark_offsets(Place(*tp), cached=True)
        return low if self._from_beginning else -1

    # Seeking.

    def _assigned(self) -> list[Place]:
        try:
            return self._consumer.assignment()
        except KafkaException as error:
            raise self._failed(error.args[0]) from error

    def _seek(self, positions: Sequence[Place]) -> None:
        wanted = {(position.topic, position.partition) for position in positions}
        self._finish_current()
        self._buffer = deque(
            message
            for message in self._buffer
            if (message.topic(), message.partition()) not in wanted
        )
        for position in positions:
            self._done.pop(TopicPartition(position.topic, position.partition), None)
            self._reached.pop(TopicPartition(position.topic, position.partition), None)
            self._seek_one(position)

    def _at_end(self, position: Place) -> Place:
        """The end offset as of now: librdkafka looks it up later and could skip new messages."""
        _, end = self._consumer.get_watermark_offsets(position, timeout=_SEEK_TIMEOUT_S)
        return Place(position.topic, position.partition, end)

    def _seek_one(self, position: Place) -> None:
        """Retries, because librdkafka cannot seek in a partition that was only just assigned."""
        deadline = time.monotonic() + _SEEK_TIMEOUT_S
        while True:
            try:
                self._consumer.seek(position)
            except KafkaException as error:
                is_early = error.args[0].code() == LocalCode.STATE
                if not is_early or time.monotonic() > deadline:
                    raise self._failed(error.args[0]) from error
                time.sleep(0.01)
            else:
                return

    def _get_topic(self, topic: str | None) -> str:
        if topic is not None:
            return topic
        if len(self.topics) != 1:
            raise ConsumeFailed(f"name the topic: this consumer reads {', '.join(self.topics)}")
        return self.topics[0]

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the consumer is closed; create a new one to read more")

    def _failed(self, error: "KafkaError") -> ConsumeFailed:
        code = find_code(error)
        text = f"cannot read {', '.join(self.topics)}: {error.str()}"
        if error.code() in _NO_CONNECTION:
            return BrokersUnreachable(self._trouble.explain(text))
        return ConsumeFailed(text if code else self._trouble.explain(text), code=code)


_NO_CONNECTION = frozenset({LocalCode.ALL_BROKERS_DOWN, LocalCode.TRANSPORT, LocalCode.RESOLVE})
# Transient errors: librdkafka itself waits or rejoins.
PASSING_CODES = _NO_CONNECTION | {LocalCode.MAX_POLL_EXCEEDED, LocalCode.PARTITION_EOF}


# A batch that librdkafka cannot read; it comes again with every fetch.
DAMAGE_CODES = frozenset({LocalCode.BAD_COMPRESSION, LocalCode.BAD_MSG})


def read_message(raw: "RdKafkaMessage") -> Message:
    headers: Any = raw.headers()
    _, timestamp_ms = raw.timestamp()
    fields: Any = (
        raw.topic(),
        raw.partition(),
        raw.offset(),
        raw.key(),
        raw.value(),
        tuple(headers) if headers else (),
        timestamp_ms,
    )
    return Message._make(fields)


def _assignor_settings(assignor: str | None, group: str | None) -> dict[str, str]:
    if assignor is None:
        return {}
    if group is None:
        raise ValueError(f"assignor {assignor!r} shares partitions in a group; name the group")
    return {"group.protocol": "consumer", "group.remote.assignor": assignor}
