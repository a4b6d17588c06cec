"""A Metadata response, the largest message a broker encodes: topics of 100 partitions."""

import uuid
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import response as schema

from bench.messages.peer import compare, to_ours, write_with_kio
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import encode, get_response_schema

PARTITIONS_PER_TOPIC = 100


def measure(partitions: int) -> dict[str, Any]:
    message = make_response(partitions)
    ours = to_ours(message, get_response_schema(ApiKey.METADATA, 12))
    assert encode(ours) == write_with_kio(message)
    measured = compare(
        lambda: write_with_kio(message),
        lambda: encode(ours),
        rounds=max(5, 20_000 // partitions // 10),
        calls=max(1, 1000 // partitions),
    )
    return {"partitions": partitions, "bytes": len(encode(ours)), **measured}


def make_response(partitions: int) -> Any:
    build: Any = schema
    topics = tuple(
        build.MetadataResponseTopic(
            error_code=ErrorCode.none,
            name=f"topic-{number}",
            topic_id=uuid.UUID(int=number + 1),
            partitions=tuple(_partition(build, index) for index in range(PARTITIONS_PER_TOPIC)),
        )
        for number in range(partitions // PARTITIONS_PER_TOPIC)
    )
    brokers = tuple(
        build.MetadataResponseBroker(node_id=number, host="localhost", port=9092 + number)
        for number in range(3)
    )
    return build.MetadataResponse(
        throttle_time=timedelta(0),
        brokers=brokers,
        cluster_id="penstock",
        controller_id=0,
        topics=topics,
    )


def _partition(build: Any, index: int) -> Any:
    return build.MetadataResponsePartition(
        error_code=ErrorCode.none,
        partition_index=index,
        leader_id=index % 3,
        leader_epoch=5,
        replica_nodes=(0, 1, 2),
        isr_nodes=(0, 1, 2),
    )
