"""Arguments of `penstock.Admin` as users write them, checked and made uniform. Pure.

A wrong one is a ValueError or TypeError that says what to write; nothing has been sent then.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal

from penstock.client.admin_values import ConfigResource, NewTopic
from penstock.client.data_calls import EARLIEST, LATEST, MAX_TIMESTAMP
from penstock.client.errors import RefusedByBroker
from penstock.client.metadata import TopicMetadata
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition, check_partition

# A topic stands for all its partitions; a partition is a TopicPartition or a plain tuple.
PartitionsGiven = str | tuple[str, int] | Iterable[str | tuple[str, int]]
OffsetAt = Literal["earliest", "latest", "max_timestamp"] | datetime | int

_EDGES: Mapping[str, int] = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max_timestamp": MAX_TIMESTAMP,
}


def read_names(kind: str, given: str | Iterable[str]) -> list[str]:
    """Names without duplicates; one may be given as it is."""
    names = [given] if isinstance(given, str) else list(dict.fromkeys(given))
    if not names:
        raise ValueError(f"no {kind} is named: name at least one")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is not the name of a {kind}: write it as str")
        if not name:
            raise ValueError(f"the name of a {kind} is empty")
    return names


def read_name(kind: str, given: str) -> str:
    (name,) = read_names(kind, [given])
    return name


def read_new_topics(given: str | NewTopic | Iterable[str | NewTopic]) -> list[NewTopic]:
    listed = [given] if isinstance(given, str | NewTopic) else list(given)
    topics = [NewTopic(topic) if isinstance(topic, str) else topic for topic in listed]
    names = read_names("topic", [topic.name for topic in topics])
    if len(names) < len(topics):
        raise ValueError("a topic is named twice: name each one once")
    return [_check_topic(topic) for topic in topics]


def _check_topic(topic: NewTopic) -> NewTopic:
    what = f"topic {topic.name!r}"
    for label, number in (
        ("partitions", topic.partitions),
        ("replication_factor", topic.replication_factor),
    ):
        if number is not None:
            _check_count(f"{label} of {what}", number)
    if topic.assignment:
        if topic.partitions is not None or topic.replication_factor is not None:
            raise ValueError(
                f"{what} has an assignment, which decides partitions and replication_factor: "
                "leave those out"
            )
        if sorted(topic.assignment) != list(range(len(topic.assignment))):
            raise ValueError(f"the assignment of {what} must number its partitions from 0")
        for brokers in topic.assignment.values():
            read_brokers(what, brokers)
    return topic


def read_totals(given: Mapping[str, int]) -> dict[str, int]:
    read_names("topic", given)
    for name, total in given.items():
        _check_count(f"partitions of topic {name!r}", total)
    return dict(given)


def _check_count(what: str, number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{what} is {number!r}: write a number from 1 on")


def read_brokers(what: str, given: Iterable[int]) -> list[int]:
    brokers = list(given)
    if not brokers or len(set(brokers)) < len(brokers):
        raise ValueError(f"replicas of {what}: name each broker once, the preferred leader first")
    for broker in brokers:
        if isinstance(broker, bool) or not isinstance(broker, int) or broker < 0:
            raise ValueError(f"replicas of {what}: {broker!r} is not the id of a broker")
    return brokers


def read_partition(given: tuple[str, int]) -> TopicPartition:
    match given:
        case (str(topic), int(partition)) if topic:
            return TopicPartition(topic, check_partition(partition))
    raise TypeError(f"{given!r} is not a partition: write TopicPartition('orders', 0)")


def split_partitions(given: PartitionsGiven) -> tuple[list[str], list[TopicPartition]]:
    """The topics that are meant as a whole, and the single partitions."""
    one = isinstance(given, str | TopicPartition) or _is_pair(given)
    listed: Iterable[str | tuple[str, int]] = [given] if one else list(given)  # type: ignore[list-item, arg-type] # by `one`
    topics = [item for item in listed if isinstance(item, str)]
    partitions = [read_partition(item) for item in listed if not isinstance(item, str)]
    if not topics and not partitions:
        raise ValueError("no partition is named: name a topic, or TopicPartition('orders', 0)")
    return (read_names("topic", topics) if topics else []), list(dict.fromkeys(partitions))


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int)


def check_exists(tp: TopicPartition, topic: TopicMetadata) -> RefusedByBroker | None:
    if tp.partition < len(topic.partitions):
        return None
    return RefusedByBroker(
        f"partition {tp.partition} of topic {tp.topic!r}",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"it does not exist: the topic has {len(topic.partitions)}, numbered from 0",
    )


def read_offset_at(given: OffsetAt) -> int:
    """As ListOffsets takes it: a time in milliseconds, or one of its special values."""
    if isinstance(given, datetime):
        return time_ms(given)
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    if isinstance(given, str) and given in _EDGES:
        return _EDGES[given]
    raise ValueError(
        f"{given!r} is no position: write 'earliest', 'latest', 'max_timestamp', a datetime, or "
        "milliseconds since 1970"
    )


def time_ms(moment: datetime) -> int:
    """A datetime without a zone is UTC, as in the command line and in Kafka's tools."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return round(aware.timestamp() * 1000)


def read_offset(tp: TopicPartition, offset: int) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ValueError(f"offset {offset!r} of {tp}: write a number from 0 on")
    return offset


def read_resources(given: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    resources = [given] if isinstance(given, ConfigResource) else list(dict.fromkeys(given))
    if not resources:
        raise ValueError("no resource is named: write ConfigResource.topic('orders')")
    for resource in resources:
        if not isinstance(resource, ConfigResource):
            raise TypeError(f"{resource!r} is not a resource: write ConfigResource.topic('orders')")
    return resources
