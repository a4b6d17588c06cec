"""Reads whole topics without a group: assigns every partition, and new ones as they appear.

Only the reading thread calls this. Invariant: a partition that appears later is read from its
beginning, because nothing in it was written before the consumer started.
"""

import time
from collections.abc import Iterable, Sequence

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as Place

from penstock.client.errors import ConsumeFailed
from penstock.client.rdkafka import LOG, find_code
from penstock.model.ids import TopicPartition

_UNKNOWN_TOPIC_TIMEOUT_S = 1.0  # while a topic is unknown, because it may be being created
_PAUSE_S = 0.1


class WholeTopics:
    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        *,
        from_beginning: bool,
        look_every_s: float,
        timeout_s: float,
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._look_every_s = look_every_s
        self._timeout_s = timeout_s
        self._assigned: dict[TopicPartition, int] = {}  # with the offset to start at
        partitions = self._find_all()
        self._assign(self._resolve(partitions, OFFSET_BEGINNING if from_beginning else OFFSET_END))
        self._looked_at = time.monotonic()

    def look_if_due(self) -> None:
        """Assign partitions that were added since; if the broker is away, try again next time."""
        if time.monotonic() - self._looked_at < self._look_every_s:
            return
        try:
            self._assign(_from_beginning(tp for tp in self._find_all()))
        except (KafkaException, ConsumeFailed) as error:
            LOG.warning("cannot look for new partitions of %s: %s", self._topics, error)
        self._looked_at = time.monotonic()

    def start_of(self, tp: TopicPartition) -> int:
        """The offset at which reading of an assigned partition began."""
        return self._assigned.get(tp, -1)

    def _assign(self, positions: Sequence[Place]) -> None:
        new = [
            position
            for position in positions
            if (position.topic, position.partition) not in self._assigned
        ]
        if new:
            self._consumer.incremental_assign(new)
            for position in new:
                tp = TopicPartition(position.topic, position.partition)
                self._assigned[tp] = max(position.offset, 0)  # the beginning, of new partitions

    def _resolve(self, partitions: Sequence[TopicPartition], edge: int) -> list[Place]:
        """Resolve the beginning or the end to offsets now. So records sent once the consumer exists
        are not missed, however late its first read is, and no lookup pending in librdkafka undoes a
        seek."""
        positions = [Place(tp.topic, tp.partition, edge) for tp in partitions]
        answers = self._consumer.offsets_for_times(positions, timeout=self._timeout_s)
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return answers

    def _find_all(self) -> list[TopicPartition]:
        return [tp for topic in self._topics for tp in self._find(topic)]

    def _find(self, topic: str) -> list[TopicPartition]:
        deadline = time.monotonic() + _UNKNOWN_TOPIC_TIMEOUT_S
        while True:
            topic_metadata = self._consumer.list_topics(topic, timeout=self._timeout_s).topics[
                topic
            ]
            if topic_metadata.partitions:
                return [
                    TopicPartition(topic, number) for number in sorted(topic_metadata.partitions)
                ]
            if time.monotonic() >= deadline:
                raise ConsumeFailed(
                    f"topic {topic!r} cannot be read: {topic_metadata.error.str()}",
                    code=find_code(topic_metadata.error),
                )
            time.sleep(_PAUSE_S)


def _from_beginning(partitions: Iterable[TopicPartition]) -> list[Place]:
    return [Place(tp.topic, tp.partition, OFFSET_BEGINNING) for tp in partitions]
