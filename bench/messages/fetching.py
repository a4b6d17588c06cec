"""A consumer's fetch: decoding the request, and encoding the response around file slices."""

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import request, response

from bench.messages.peer import compare, kio_reader, to_ours, write_with_kio
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.decoder import decode
from penstock.protocol.frames import encode_response_parts
from penstock.protocol.messages import encode, get_request_schema, get_response_schema
from penstock.protocol.schemas import describe_fields


class Slice:
    """A stand-in for a file slice: a length, no bytes."""

    def __len__(self) -> int:
        return 1024


def measure_request(partitions: int) -> dict[str, Any]:
    schema = get_request_schema(ApiKey.FETCH, 12)
    body = encode(to_ours(_make_request(partitions), schema))
    read = kio_reader(request.FetchRequest)
    measured = compare(
        lambda: read(body),
        lambda: decode(schema, body),
        rounds=40,
        calls=max(5, 2000 // partitions),
    )
    return {"partitions": partitions, **measured}


def measure_response(partitions: int) -> dict[str, Any]:
    """kio needs the records as bytes, which our encoder never touches."""
    copied = _make_response(partitions, bytes(1024))
    sliced = _with_slices(to_ours(copied, get_response_schema(ApiKey.FETCH, 12)))
    measured = compare(
        lambda: write_with_kio(copied),
        lambda: encode_response_parts(sliced, correlation_id=1),
        rounds=40,
        calls=max(5, 500 // partitions),
    )
    return {"partitions": partitions, **measured}


def _with_slices(response: Any) -> Any:
    (topic,) = response.responses
    partitions = tuple(_without_tags(data) for data in topic.partitions)
    return response.__replace__(responses=(topic.__replace__(partitions=partitions),))


def _make_request(partitions: int) -> Any:
    build: Any = request
    entries = tuple(
        build.FetchPartition(
            partition=index,
            current_leader_epoch=1,
            fetch_offset=1000,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        for index in range(partitions)
    )
    return build.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=0,
        topics=(build.FetchTopic(topic="topic", partitions=entries),),
        forgotten_topics_data=(),
        rack_id="",
    )


def _make_response(partitions: int, records: Any) -> Any:
    build: Any = response
    entries = tuple(
        build.PartitionData(
            partition_index=index,
            error_code=ErrorCode.none,
            high_watermark=2000,
            last_stable_offset=2000,
            log_start_offset=0,
            aborted_transactions=None,
            records=records,
        )
        for index in range(partitions)
    )
    return build.FetchResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        responses=(build.FetchableTopicResponse(topic="topic", partitions=entries),),
    )


def _without_tags(data: Any) -> Any:
    """Builds it as a handler does: absent tagged fields are the schema's own default objects, which
    the encoder recognises by identity."""
    shapes = (shape for shape in describe_fields(type(data)) if shape.tag is None)
    fields = {shape.name: getattr(data, shape.name) for shape in shapes}
    return type(data)(**fields | {"records": Slice()})
