"""Partition counts of topics, for producers that choose partitions themselves.

Any thread reads them; one thread refreshes them, so that a new partition is used within a minute.
"""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from penstock.client.errors import SendFailed
from penstock.client.rdkafka import Trouble, find_code

REFRESH_S = 60.0
_FIRST_ANSWER_S = 10.0
_PATIENCE_S = 2.0  # while a topic is unknown, because it may be being created
_PAUSE_S = 0.1


class PartitionCounts:
    def __init__(self, list_topics: Callable[[str, float], Any], trouble: Trouble) -> None:
        self._list_topics = list_topics
        self._trouble = trouble
        self._counts: dict[str, int] = {}
        self._refreshed_at = time.monotonic()

    def get(self, topic: str) -> int:
        """The count, at least 1; SendFailed for a topic that does not exist."""
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._ask(topic)
        return count

    def refresh_if_due(self) -> None:
        if time.monotonic() - self._refreshed_at < REFRESH_S:
            return
        for topic in list(self._counts):
            try:
                self._counts[topic] = self._ask(topic)
            except SendFailed:
                del self._counts[topic]  # the next send looks it up again and gets the error
        self._refreshed_at = time.monotonic()

    def _ask(self, topic: str) -> int:
        patience_ends = time.monotonic() + _PATIENCE_S
        while True:
            try:
                topic_metadata = self._list_topics(topic, _FIRST_ANSWER_S).topics[topic]
            except KafkaException as error:
                text = f"cannot ask for the partitions of topic {topic!r}: {error.args[0].str()}"
                raise SendFailed(self._trouble.explain(text)) from error
            if topic_metadata.partitions:
                return len(topic_metadata.partitions)
            if time.monotonic() >= patience_ends:
                raise SendFailed(
                    f"topic {topic!r} cannot be sent to: {topic_metadata.error.str()}",
                    code=find_code(topic_metadata.error),
                )
            time.sleep(_PAUSE_S)
