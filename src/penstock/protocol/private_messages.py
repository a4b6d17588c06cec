"""What brokers ask of the controller for themselves, and the answer to every private request.

The layouts of docs/inter_broker.md beside the orders, which have a module of their own.
"""

from typing import NamedTuple

from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode, known_error
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter

LEAVE_VERSIONS = range(1)
FAILED_VERSIONS = range(1)


class PrivateResult(NamedTuple):
    code: ErrorCode
    message: str | None


class PrivateAnswer(NamedTuple):
    """How every answer to a private request begins."""

    code: ErrorCode
    message: str | None
    first_version: int  # those that the answering broker serves: of use with UNSUPPORTED_VERSION
    last_version: int
    partitions: tuple[TopicPartition, ...] = ()  # of BrokerLeaves: those that it still leads
    results: tuple[PrivateResult, ...] = ()  # of ForwardedConfigs: one for each change


def encode_answer(answer: PrivateAnswer) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int16(answer.code)
    writer.string(answer.message)
    writer.int16(answer.first_version)
    writer.int16(answer.last_version)
    writer.array(answer.partitions, _write_partition)
    writer.array(answer.results, _write_result)
    writer.tags()
    return writer.done()


def decode_answer(body: Buffer) -> PrivateAnswer:
    reader = ValueReader(body, flexible=True)
    answer = PrivateAnswer(
        _read_code(reader),
        reader.nullable_string(),
        reader.int16(),
        reader.int16(),
        tuple(reader.array(_read_partition)),
        tuple(reader.array(_read_result)),
    )
    reader.tags()
    reader.end()
    return answer


class LeaveRequest(NamedTuple):
    broker: BrokerId
    broker_epoch: BrokerEpoch
    timeout_ms: int


def encode_leave(request: LeaveRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int32(request.broker)
    writer.int64(request.broker_epoch)
    writer.int32(request.timeout_ms)
    writer.tags()
    return writer.done()


def decode_leave(body: Buffer) -> LeaveRequest:
    reader = ValueReader(body, flexible=True)
    request = LeaveRequest(BrokerId(reader.int32()), BrokerEpoch(reader.int64()), reader.int32())
    reader.tags()
    reader.end()
    return request


class FailedReplicas(NamedTuple):
    broker: BrokerId
    broker_epoch: BrokerEpoch
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


def encode_failed(told: FailedReplicas) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int32(told.broker)
    writer.int64(told.broker_epoch)
    writer.int32(told.timeout_ms)
    writer.array(told.partitions, _write_partition)
    writer.tags()
    return writer.done()


def decode_failed(body: Buffer) -> FailedReplicas:
    reader = ValueReader(body, flexible=True)
    told = FailedReplicas(
        BrokerId(reader.int32()),
        BrokerEpoch(reader.int64()),
        reader.int32(),
        tuple(reader.array(_read_partition)),
    )
    reader.tags()
    reader.end()
    return told


def _write_partition(writer: ValueWriter, partition: TopicPartition) -> None:
    writer.string(partition.topic)
    writer.int32(partition.partition)
    writer.tags()


def _read_partition(reader: ValueReader) -> TopicPartition:
    partition = TopicPartition(reader.string(), reader.int32())
    reader.tags()
    return partition


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
