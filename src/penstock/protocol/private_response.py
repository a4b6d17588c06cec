"""The response to every private request between brokers, to bytes and back (docs/inter_broker.md).

In `protocol` because the client decodes it; the request bodies are in `inter_broker.messages`.
"""

from typing import NamedTuple

from penstock.model.errors import ErrorCode, known_error
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter


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


def encode_private_response(response: PrivateResponse) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int16(response.code)
    writer.string(response.message)
    writer.int16(response.first_version)
    writer.int16(response.last_version)
    writer.array(response.partitions, write_topic_partition)
    writer.array(response.results, _write_result)
    writer.tags()
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
    reader.tags()
    reader.end()
    return response


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
