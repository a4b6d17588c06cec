"""Partition counts: looked up once, refreshed when due, kept while the broker is away."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import SendFailed
from penstock.client.partition_counts import PartitionCounts
from penstock.client.rdkafka import LocalCode, Trouble


class FakeTopics:
    """Answers list_topics; None: the broker is away."""

    def __init__(self, count: int) -> None:
        self.count: int | None = count
        self.asked_times = 0

    def __call__(self, topic: str, timeout_s: float) -> SimpleNamespace:
        self.asked_times += 1
        if self.count is None:
            raise KafkaException(KafkaError(LocalCode.TRANSPORT))
        described = SimpleNamespace(
            partitions=dict.fromkeys(range(self.count)), error=KafkaError(3, "unknown topic")
        )
        return SimpleNamespace(topics={topic: described})


def counts_of(topics: FakeTopics, *, every_s: float) -> PartitionCounts:
    return PartitionCounts(topics, Trouble("127.0.0.1:9092"), refresh_every_s=every_s)


def test_a_count_is_asked_for_once_until_it_is_due() -> None:
    topics = FakeTopics(2)
    counts = counts_of(topics, every_s=3_600)
    topics.count = 5
    assert (counts.get("t"), counts.get("t")) == (5, 5)
    topics.count = 7
    counts.refresh_if_due()
    assert (counts.get("t"), topics.asked_times) == (5, 1)


def test_a_due_count_is_refreshed() -> None:
    topics = FakeTopics(2)
    counts = counts_of(topics, every_s=0)
    assert counts.get("t") == 2
    topics.count = 7
    counts.refresh_if_due()
    assert counts.get("t") == 7


def test_a_broker_that_is_away_changes_no_count() -> None:
    topics = FakeTopics(2)
    counts = counts_of(topics, every_s=0)
    assert counts.get("t") == 2
    topics.count = None
    counts.refresh_if_due()
    assert counts.get("t") == 2


def test_a_deleted_topic_is_looked_up_again() -> None:
    topics = FakeTopics(2)
    counts = counts_of(topics, every_s=0)
    assert counts.get("t") == 2
    topics.count = 0
    counts.refresh_if_due()
    with pytest.raises(SendFailed, match="'t' cannot be sent to"):
        counts.get("t")
