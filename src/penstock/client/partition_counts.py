"""Partition counts of topics, for producers that choose partitions themselves.

Any thread reads them; one thread refreshes them, so that a new partition is used within the
producer's metadata_max_age_ms. Invariant: a broker that is away changes no count.
"""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from penstock.client.errors import SendFailed
from penstock.client.rdkafka import LOG, Trouble, find_code

_FIRST_ANSWER_S = 10.0
_REFRESH_TIMEOUT_S = 1.0  # the thread that refreshes also completes deliveries
_UNKNOWN_TOPIC_TIMEOUT_S = 2.0  # because it may be being created
_PAUSE_S = 0.1


class PartitionCounts:
    def __init__(
        self, list_topics: Callable[[str, float], Any], trouble: Trouble, *, refresh_every_s: float
    ) -> None:
        self._list_topics = list_topics
        self._refresh_every_s = refresh_every_s
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
        if time.monotonic() - self._refreshed_at < self._refresh_every_s:
            return
        for topic in list(self._counts):
            try:
                topic_metadata = self._list_topics(topic, _REFRESH_TIMEOUT_S).topics[topic]
            except KafkaException as error:
                LOG.warning("cannot look for new partitions of %s: %s", topic, error)
                continue
            if topic_metadata.partitions:
                self._counts[topic] = len(topic_metadata.partitions)
            else:
                del self._counts[topic]  # the next send looks it up again and gets the error
        self._refreshed_at = time.monotonic()

    def _ask(self, topic: str) -> int:
        deadline = time.monotonic() + _UNKNOWN_TOPIC_TIMEOUT_S
        while True:
            try:
                topic_metadata = self._list_topics(topic, _FIRST_ANSWER_S).topics[topic]
            except KafkaException as error:
                text = f"cannot ask for the partitions of topic {topic!r}: {error.args[0].str()}"
                raise SendFailed(self._trouble.explain(text)) from error
            if topic_metadata.partitions:
                return len(topic_metadata.partitions)
            if time.monotonic() >= deadline:
                raise SendFailed(
                    f"topic {topic!r} cannot be sent to: {topic_metadata.error.str()}",
                    code=find_code(topic_metadata.error),
                )
            time.sleep(_PAUSE_S)
