"""OffsetCommit's hand-written response: the bytes of the generic encoder."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from penstock.apis.groups.offset_commit import KEY
from penstock.apis.groups.offset_commit_response import encode_commit_response
from penstock.apis.response_shapes import response_shape
from penstock.model.errors import ErrorCode
from penstock.protocol.encoder import encode

VERSIONS = range(2, 11)
CODES = [
    [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REBALANCE_IN_PROGRESS],
    [],
    [ErrorCode.UNKNOWN_SERVER_ERROR],
]


def requested_topic(name: str, count: int, topic_id: UUID | None) -> Any:
    partitions = [SimpleNamespace(partition_index=number * 7) for number in range(count)]
    return SimpleNamespace(name=name, topic_id=topic_id, partitions=partitions)


TOPICS = [
    requested_topic("orders", 3, UUID(int=5)),
    requested_topic("n" * 249, 0, UUID(int=6)),
    requested_topic("t", 1, None),
]


def generic(version: int) -> Any:
    shape = response_shape(KEY, version)
    topic_shape = shape["topics"]
    topics = tuple(
        topic_shape(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(
                topic_shape["partitions"](partition_index=entry.partition_index, error_code=code)
                for entry, code in zip(topic.partitions, codes, strict=True)
            ),
        )
        for topic, codes in zip(TOPICS, CODES, strict=True)
    )
    return shape(throttle_time=timedelta(), topics=topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_the_generic_encoder(version: int) -> None:
    assert encode_commit_response(version, TOPICS, CODES) == encode(generic(version))
