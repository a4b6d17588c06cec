"""The response to every private request, to bytes and back (docs/inter_broker.md).

In `protocol` because the client decodes it; the request bodies are in `inter_broker.messages`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.model.errors import ErrorCode, known_error
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.unsigned_varint import encode_unsigned_varint

_TRUNCATED_TAG = 0
_PAYLOAD_TAG = 1


class PrivateResult(NamedTuple):
    code: ErrorCode
    message: str | None


class PrivateResponse(NamedTuple):
    code: ErrorCode
    message: str | None
    first_version: int  # what the responding broker supports; needed with UNSUPPORTED_VERSION
    last_version: int
    partitions: tuple[TopicPartition, ...] = ()  # ControlledShutdown: still led by the broker
    results: tuple[PrivateResult, ...] = ()  # ForwardedConfigs: one per change
    is_truncated: bool = False  # DescribeMetrics: the payload was cut at its limit
    payload: bytes = b""  # DescribeMetrics: text


def encode_private_response(response: PrivateResponse) -> bytes:
    """Of a response without payload."""
    return _encode_fields(response) + encode_unsigned_varint(0)


def encode_payload_response(response: PrivateResponse, payload: Sequence[bytes]) -> list[Any]:
    """The body in parts. The payload's are views, so that megabytes are not copied at once."""
    size = sum(map(len, payload))
    truncated = (_TRUNCATED_TAG, 1, 1) if response.is_truncated else ()
    numbers = (2 if truncated else 1, *truncated, _PAYLOAD_TAG, size)
    head = _encode_fields(response) + b"".join(map(encode_unsigned_varint, numbers))
    return [head, *[memoryview(chunk) for chunk in payload]]


def _encode_fields(response: PrivateResponse) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int16(response.code)
    writer.string(response.message)
    writer.int16(response.first_version)
    writer.int16(response.last_version)
    writer.array(response.partitions, write_topic_partition)
    writer.array(response.results, _write_result)
    return writer.done()


def decode_private_response(body: Buffer) -> PrivateResponse:
    reader = ValueReader(body, flexible=True)
    response = PrivateResponse(
        _read_code(reader),
        reader.nullable_string(),
        reader.int16(),
        reader.int16(),
        tuple(reader.array(read_topic_partition)),
        tuple(reader.array(_read_result)),
    )
    tags = reader.tags()
    reader.end()
    if not tags:
        return response
    return response._replace(
        is_truncated=_TRUNCATED_TAG in tags, payload=bytes(tags.get(_PAYLOAD_TAG, b""))
    )


def write_topic_partition(writer: ValueWriter, tp: TopicPartition) -> None:
    writer.string(tp.topic)
    writer.int32(tp.partition)
    writer.tags()


def read_topic_partition(reader: ValueReader) -> TopicPartition:
    tp = TopicPartition(reader.string(), reader.int32())
    reader.tags()
    return tp


def _write_result(writer: ValueWriter, result: PrivateResult) -> None:
    writer.int16(result.code)
    writer.string(result.message)
    writer.tags()


def _read_result(reader: ValueReader) -> PrivateResult:
    result = PrivateResult(_read_code(reader), reader.nullable_string())
    reader.tags()
    return result


def _read_code(reader: ValueReader) -> ErrorCode:
    return known_error(reader.int16())
