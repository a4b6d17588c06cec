"""Typed names for topics, partitions, offsets and epochs. Their only behaviour is validation."""

import re
from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TimestampMs = NewType("TimestampMs", int)
TopicId = NewType("TopicId", UUID)

NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_TIMESTAMP = TimestampMs(-1)

MAX_TOPIC_NAME_LENGTH = 249
MAX_PARTITION = 2**31 - 1
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class InvalidTopicName(ValueError):
    """Not a valid topic name; topic names become directory names."""


def check_topic_name(name: str) -> str:
    """Returns the name, or raises InvalidTopicName. Call it before the name is used in a path."""
    if name in (".", ".."):
        raise InvalidTopicName(f"topic name {name!r} is reserved; choose another")
    if _TOPIC_NAME.fullmatch(name) is None:
        raise InvalidTopicName(
            f"topic name {name[:60]!r} ({len(name)} characters) is not valid: use 1 to "
            f"{MAX_TOPIC_NAME_LENGTH} of the characters a-z A-Z 0-9 . _ -"
        )
    return name


class InvalidPartition(ValueError):
    """Not a valid partition number: requests hold it in 32 bits."""


def check_partition(partition: int) -> int:
    """Returns the number, or raises InvalidPartition."""
    if not 0 <= partition <= MAX_PARTITION:
        raise InvalidPartition(
            f"partition {partition} is not valid: use a number from 0 to {MAX_PARTITION}"
        )
    return partition
