"""DescribeOffsetTimes (private key 31012), version 0: request body and payload, to bytes and back.

In `protocol` because the client sends and reads it; the response is `private_response` with a
payload. ListOffsets finds the offset at a time; this is the way back.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.private_response import read_topic_partition, write_topic_partition
from penstock.protocol.request_budget import RequestBudget

DESCRIBE_OFFSET_TIMES_VERSIONS = range(1)
MAX_OFFSETS = 1_000  # of one request: each may be a read of the disk


class WantedTime(NamedTuple):
    tp: TopicPartition
    offset: int


class OffsetTime(NamedTuple):
    """The time of the first record from the offset on, as its batch's header tells it."""

    tp: TopicPartition
    timestamp_ms: int


class OffsetTimes(NamedTuple):
    now_ms: int  # by the broker's clock: the sender's may be wrong
    times: tuple[OffsetTime, ...]


def encode_describe_offset_times(wanted: Sequence[WantedTime]) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.array(wanted, _write_wanted)
    writer.tags()
    return writer.done()


def decode_describe_offset_times(
    body: Buffer, budget: RequestBudget | None = None
) -> list[WantedTime]:
    reader = ValueReader(body, flexible=True, budget=budget)
    wanted = reader.array(_read_wanted)
    reader.tags()
    reader.end()
    return wanted


def encode_offset_times(times: OffsetTimes) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int64(times.now_ms)
    writer.array(times.times, _write_time)
    writer.tags()
    return writer.done()


def decode_offset_times(payload: Buffer) -> OffsetTimes:
    reader = ValueReader(payload, flexible=True)
    times = OffsetTimes(reader.int64(), tuple(reader.array(_read_time)))
    reader.tags()
    reader.end()
    return times


def _write_wanted(writer: ValueWriter, wanted: WantedTime) -> None:
    write_topic_partition(writer, wanted.tp)
    writer.int64(wanted.offset)
    writer.tags()


def _read_wanted(reader: ValueReader) -> WantedTime:
    wanted = WantedTime(read_topic_partition(reader), reader.int64())
    reader.tags()
    return wanted


def _write_time(writer: ValueWriter, time: OffsetTime) -> None:
    write_topic_partition(writer, time.tp)
    writer.int64(time.timestamp_ms)
    writer.tags()


def _read_time(reader: ValueReader) -> OffsetTime:
    time = OffsetTime(read_topic_partition(reader), reader.int64())
    reader.tags()
    return time
