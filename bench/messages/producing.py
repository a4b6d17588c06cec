"""A Produce request of 1 KB batches: views of the receive buffer, compared with kio's copies."""

from datetime import timedelta
from typing import Any

from kio.schema.produce.v9 import request as schema

from bench.messages.peer import compare, kio_reader, to_ours
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import encode, get_request_schema
from penstock.protocol.produce_request import read_produce_request

BATCH = bytes(1024)


def measure(partitions: int) -> dict[str, Any]:
    build: Any = schema
    message = build.ProduceRequest(
        acks=-1,
        timeout=timedelta(seconds=30),
        topic_data=(
            build.TopicProduceData(
                name="topic",
                partition_data=tuple(
                    build.PartitionProduceData(index=index, records=BATCH)
                    for index in range(partitions)
                ),
            ),
        ),
    )
    body = encode(to_ours(message, get_request_schema(ApiKey.PRODUCE, 9)))
    received = memoryview(bytearray(body))
    read = kio_reader(schema.ProduceRequest)
    measured = compare(
        lambda: read(body),
        lambda: read_produce_request(received, 9),
        rounds=40,
        calls=max(5, 2000 // partitions),
    )
    per_partition = round(measured["our_microseconds"] / partitions, 3)
    return {"partitions": partitions, **measured, "our_microseconds_per_partition": per_partition}
