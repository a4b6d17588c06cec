"""Reads the partitions that the membership gives it, through librdkafka's `assign`.

Two threads share it: the program's reads, the membership's stops and starts it. It joins no group,
and commits only what the membership asks for. Invariant: a message is handed out only between
`start` and `stop`, while `may_read` holds; its offset counts as done once the program asks for the
next one.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer as RdKafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Place

from penstock.client.consumer import DAMAGE_CODES, PASSING_CODES, read_message
from penstock.client.damaged_batches import DamagedBatches, describe_damage
from penstock.client.errors import BrokersUnreachable, ConsumeFailed
from penstock.client.message import Message
from penstock.client.rdkafka import LOG, Trouble, common_settings, find_code, settings_checked
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.reading_progress import Offsets, ReadingProgress

if TYPE_CHECKING:
    from confluent_kafka import Message as RdKafkaMessage

_SLICE_S = 0.1  # upper bound of a poll, for which `stop` may wait
_MAX_BUFFERED = 500
# A partition may lose its leader or its topic; the membership hears of it from ZooKeeper.
_PASSING = PASSING_CODES | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}


class Batch(NamedTuple):
    messages: list[Message]
    was_active: bool  # False: no partitions were assigned while it waited


class PartitionReader:
    def __init__(
        self,
        bootstrap_servers: str,
        *,
        group: str,
        client_id: str,
        from_beginning: bool,
        may_read: Callable[[], bool],
        config: Mapping[str, Any],
        progress: ReadingProgress,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._trouble = Trouble(bootstrap_servers)
        settings = {
            "group.id": group,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
            "isolation.level": "read_uncommitted",
            **config,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        settings = common_settings(client_id, self._trouble, settings)
        with settings_checked():
            self._consumer = RdKafkaConsumer(settings)
        self._may_read = may_read
        self._condition = threading.Condition()  # its lock guards everything below
        self._is_stopping = False  # set without the lock, so that the reading thread lets go
        self._is_active = False
        self._failure: BaseException | None = None  # raised once the buffer is empty
        self._buffer: deque[RdKafkaMessage] = deque()  # fetched, not handed out
        self._progress = progress
        self._damaged = DamagedBatches(self._consumer, settings, progress.start_of, has_group=False)

    # -- called by the program's thread ------------------------------------------------------

    def read(self, max_messages: int, timeout_s: float) -> Batch:
        """Whatever can be handed out within the timeout; waits only for the first message."""
        deadline = time.monotonic() + timeout_s
        was_active = False
        with self._condition:
            self._finish_current()
            while True:
                left_s = deadline - time.monotonic()
                wait_s = max(0.0, min(left_s, _SLICE_S))
                if self._is_active and not self._is_stopping and self._may_read():
                    was_active = True
                    if not self._buffer:
                        self._fill(wait_s)
                    messages = self._return_some(max_messages)
                    if messages:
                        return Batch(messages, was_active)
                else:
                    self._condition.wait(max(wait_s, 0.001))
                if left_s <= 0:
                    return Batch([], was_active)

    def drop_current(self) -> None:
        """What the program holds failed, so that it must be read again."""
        with self._condition:
            self._progress.drop_current()

    def finish_current(self) -> None:
        with self._condition:
            self._finish_current()

    def check_reachable(self, topic: str, timeout_s: float) -> None:
        """Raise BrokersUnreachable unless a broker answers, and ConsumeFailed if a damaged batch is
        the reason why nothing comes."""
        with self._condition:
            try:
                self._consumer.list_topics(topic, timeout=timeout_s)
            except KafkaException as error:
                text = f"cannot read: no broker answers within {timeout_s:g} s"
                raise BrokersUnreachable(
                    self._trouble.explain(f"{text}: {error.args[0].str()}")
                ) from error
            self._trouble.clear()
            if self._is_active:
                self._damaged.look(timeout_s)

    # -- called by the membership ------------------------------------------------------------

    def start(self, starts: Mapping[TopicPartition, int]) -> None:
        with self._condition:
            self._progress.assign(starts)
            self._consumer.assign([Place(*tp, offset) for tp, offset in starts.items()])
            self._is_active, self._is_stopping = True, False
            self._damaged.note_progress()
            self._condition.notify_all()

    def stop(self, drain_s: float) -> None:
        """Hand out nothing more, after waiting for the message in process, and unassign."""
        self._is_stopping = True
        with self._condition:
            if self._is_active:
                self._condition.wait_for(lambda: not self._progress.has_current, drain_s)
            self._is_active = False
            self._buffer.clear()
            self._consumer.unassign()
            self._is_stopping = False

    def done(self) -> Offsets:
        """Next offsets of the partitions in which messages were processed since they were
        assigned. Without the lock, which a read may hold for long: a copy is one step."""
        return dict(self._progress.done)

    def positions(self) -> Offsets:
        """Next offsets after the messages handed out, of every partition ever read here."""
        return dict(self._progress.position)

    def resolve(self, tp: TopicPartition, *, from_beginning: bool, timeout_s: float) -> int:
        """The first or the end offset now; ConsumeFailed."""
        try:
            low, high = self._consumer.get_watermark_offsets(Place(*tp), timeout=timeout_s)
        except KafkaException as error:
            raise self._failed(error, f"cannot find the offsets of {tp}") from error
        return int(low if from_beginning else high)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit to Kafka as a client outside of the group's members; ConsumeFailed."""
        places = [Place(*tp, offset) for tp, offset in offsets.items()]
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise self._failed(error, "cannot commit offsets to Kafka") from error
        _check_places(answers or [], "cannot commit")

    def committed(self, tps: Iterable[TopicPartition], timeout_s: float) -> Offsets:
        """What Kafka has, without partitions that have no offset; ConsumeFailed."""
        try:
            answers = self._consumer.committed([Place(*tp) for tp in tps], timeout=timeout_s)
        except KafkaException as error:
            raise self._failed(error, "cannot fetch offsets from Kafka") from error
        _check_places(answers, "cannot fetch the committed offset of")
        return {
            TopicPartition(answer.topic, answer.partition): answer.offset
            for answer in answers
            if answer.offset >= 0
        }

    def close(self) -> None:
        with self._condition:
            self._is_active = False
            self._buffer.clear()
            self._consumer.close()
            self._condition.notify_all()

    # -- under the lock ----------------------------------------------------------------------

    def _fill(self, timeout_s: float) -> None:
        self._raise_failure()
        first = self._consumer.poll(timeout_s)
        if first is None:
            self._damaged.look_if_due()
            return
        self._take(first)
        for message in self._consumer.consume(_MAX_BUFFERED, 0):
            self._take(message)
        if self._buffer:
            self._trouble.clear()
            self._damaged.note_progress()
        else:
            self._raise_failure()

    def _take(self, message: "RdKafkaMessage") -> None:
        error = message.error()
        if error is None:
            self._buffer.append(message)
        elif error.retriable() or error.code() in _PASSING:
            self._trouble.note(error)
            LOG.warning("reading %s: %s", message.topic(), error)
        elif error.code() in DAMAGE_CODES:
            tp = TopicPartition(str(message.topic()), int(message.partition() or 0))
            self._failure = ConsumeFailed(
                describe_damage(tp, int(message.offset() or 0), error.str())
            )
        else:
            self._failure = ConsumeFailed(
                self._trouble.explain(f"cannot read {message.topic()}: {error.str()}"),
                code=find_code(error),
            )

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _return_some(self, max_messages: int) -> list[Message]:
        """Checked once more, because the process may have been paused while it waited."""
        if not self._may_read() or self._is_stopping:
            return []
        count = min(max_messages, len(self._buffer))
        messages = [read_message(self._buffer.popleft()) for _ in range(count)]
        self._progress.note_returned(messages)
        return messages

    def _finish_current(self) -> None:
        self._progress.finish_current()
        self._condition.notify_all()

    def _failed(self, error: KafkaException, what: str) -> ConsumeFailed:
        cause = error.args[0]
        return ConsumeFailed(self._trouble.explain(f"{what}: {cause.str()}"), code=find_code(cause))


def _check_places(answers: Iterable[Place], what: str) -> None:
    for answer in answers:
        if answer.error is not None:
            raise ConsumeFailed(
                f"{what} {answer.topic}-{answer.partition}: {answer.error.str()}",
                code=find_code(answer.error),
            )
