"""Counters of what is written to and read from the topics of this broker.

The partitions of a topic share one `TopicTraffic`. Appends cost nothing here: the bytes and records
of a leadership are the difference of two positions of its log. Invariant: no total moves back, also
when a topic is deleted or moves away.
"""

from typing import Final, NamedTuple

_FIELDS: Final = (
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "failed_fetches",
    "failed_produces",
    "fetches",
    "messages_in",
    "produces",
    "replication_bytes_in",
    "replication_bytes_out",
)


class TrafficStatistics(NamedTuple):
    """Of one topic or of all, since the start. As in Kafka, a request counts once a partition."""

    bytes_in: int = 0  # appended as leader
    bytes_out: int = 0  # to consumers
    bytes_rejected: int = 0  # batches above max.message.bytes
    failed_fetches: int = 0
    failed_produces: int = 0
    fetches: int = 0
    messages_in: int = 0  # records appended as leader
    produces: int = 0
    replication_bytes_in: int = 0  # appended as follower
    replication_bytes_out: int = 0  # to followers

    def plus(self, other: "TrafficStatistics") -> "TrafficStatistics":
        return TrafficStatistics._make(map(int.__add__, self, other))


NO_TRAFFIC: Final = TrafficStatistics()


class TopicTraffic:
    """Written by handlers and partitions; `bytes_in` and `messages_in` lack current leaderships."""

    __slots__ = _FIELDS

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetches = 0
        self.failed_produces = 0
        self.fetches = 0
        self.messages_in = 0
        self.produces = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def snapshot(self) -> TrafficStatistics:
        return TrafficStatistics(**{name: getattr(self, name) for name in _FIELDS})


class Traffic:
    """By topic. Owned by ReplicaManager."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}  # of topics with a partition here
        self._others = TopicTraffic()  # of topics without one
        self._removed = NO_TRAFFIC  # sum of topics that had one

    def add(self, topic: str) -> TopicTraffic:
        traffic = self.topics.get(topic)
        if traffic is None:
            traffic = self.topics[topic] = TopicTraffic()
        return traffic

    def find(self, topic: str) -> TopicTraffic:
        """The topic's, or the one for all topics that have no partition here: clients choose those
        names, so they are not kept."""
        return self.topics.get(topic, self._others)

    def remove(self, topic: str) -> None:
        """The broker has no partition of the topic any more."""
        traffic = self.topics.pop(topic, None)
        if traffic is not None:
            self._removed = self._removed.plus(traffic.snapshot())

    @property
    def without_topic(self) -> TrafficStatistics:
        """The part of the total that belongs to no topic of this broker."""
        return self._removed.plus(self._others.snapshot())
