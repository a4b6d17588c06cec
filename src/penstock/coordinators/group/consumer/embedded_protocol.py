"""Kafka's ConsumerProtocol: the subscriptions and assignments that classic consumers exchange.

Versions 0 to 3; of a later version the part that these have. A consumer group decodes them for its
classic members.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.coordinators.group.consumer.partitions import Partitions, from_topics, to_topics
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import TopicPartitions
from penstock.protocol.coordinator_values import MalformedRecord, ValueReader, ValueWriter
from penstock.protocol.malformed import RequestOverLimit
from penstock.protocol.request_budget import RequestBudget

NEWEST_VERSION = 3
Content = TypeVar("Content")


class _Named(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSubscription:
    version: int
    topics: tuple[str, ...]
    owned: tuple[
        _Named, ...
    ] = ()  # absent in version 0, whose members revoke everything before they join
    rack: str | None = None


def read_subscription(metadata: bytes) -> ConsumerSubscription:
    """MalformedRecord: it is not a subscription, or names too much."""
    return _read_within_limits(metadata, _read_subscription)


def _read_subscription(reader: ValueReader) -> ConsumerSubscription:
    version = _version(reader)
    topics = tuple(reader.array(ValueReader.string))
    reader.nullable_data()
    owned = tuple(reader.array(_read_named)) if version >= 1 else ()
    if version >= 2:
        reader.int32()  # the generation in which it owned them
    rack = reader.nullable_string() if version >= 3 else None
    return ConsumerSubscription(version=version, topics=topics, owned=owned, rack=rack)


def read_assignment(data: bytes, topics: Topics) -> Partitions:
    """The assigned partitions of existing topics; MalformedRecord: it is not an assignment."""
    if not data:
        return {}
    return with_topic_ids(_read_within_limits(data, _read_assigned), topics)


def _read_assigned(reader: ValueReader) -> tuple[_Named, ...]:
    _version(reader)
    return tuple(reader.array(_read_named))


def _read_within_limits(data: bytes, read: Callable[[ValueReader], Content]) -> Content:
    """Members send these bytes, inside of a request whose own elements they are not."""
    try:
        return read(ValueReader(data, flexible=False, budget=RequestBudget()))
    except RequestOverLimit as excess:
        raise MalformedRecord(str(excess)) from None


def write_assignment(partitions: Partitions, version: int, topics: Topics) -> bytes:
    named = [
        _Named(name, numbers)
        for topic_id, numbers in to_topics(partitions)
        if (name := topics.find_name(topic_id)) is not None
    ]
    writer = ValueWriter(flexible=False)
    writer.int16(version)
    writer.array(named, _write_named)
    writer.int32(-1)  # no user data
    return writer.done()


def with_topic_ids(named: tuple[_Named, ...], topics: Topics) -> Partitions:
    views = [(topics.find(topic), partitions) for topic, partitions in named]
    return from_topics(
        TopicPartitions(view.topic_id, partitions) for view, partitions in views if view is not None
    )


def _version(reader: ValueReader) -> int:
    version = reader.int16()
    if version < 0:
        raise MalformedRecord(f"{version} is not a version of the consumer protocol")
    return min(version, NEWEST_VERSION)


def _read_named(reader: ValueReader) -> _Named:
    return _Named(reader.string(), tuple(reader.array(ValueReader.int32)))


def _write_named(writer: ValueWriter, named: _Named) -> None:
    writer.string(named.topic)
    writer.array(named.partitions, ValueWriter.int32)
