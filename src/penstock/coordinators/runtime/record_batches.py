"""Encodes a coordinator's records as batches, and decodes them from log bytes. No state, no I/O.

Reading never fails: a damaged record or one of an unknown kind is reported and skipped, so that one
bad record costs only itself.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from penstock.coordinators.runtime.dependencies import Report
from penstock.model.ids import NO_PRODUCER_ID
from penstock.protocol.batch import BatchHeader, CorruptBatch, is_crc_valid, iter_headers
from penstock.protocol.compression import Codec
from penstock.protocol.coordinator_values import UnknownKey
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.records import Record, build_batch

R = TypeVar("R")

# Upper bounds: a record's bytes besides key and value, and a batch header.
_RECORD_OVERHEAD_BYTES = 32
_BATCH_OVERHEAD_BYTES = 61


class TooLarge(Exception):
    """A single record does not fit into a batch of the topic."""


class WrittenBy(NamedTuple):
    """The producer whose transaction the records belong to, until a marker ends it."""

    producer_id: int
    producer_epoch: int


NO_TRANSACTION = WrittenBy(NO_PRODUCER_ID, -1)

# -- writing -------------------------------------------------------------------------------


def build_batches(
    records: Iterable[R],
    encode: Callable[[R], tuple[bytes, bytes | None]],
    name: Callable[[R], str],
    *,
    now_ms: int,
    max_bytes: int,
    codec: Codec = Codec.NONE,
    written_by: WrittenBy = NO_TRANSACTION,
) -> list[bytearray]:
    """As few batches as the limit allows, in order; TooLarge if one record alone exceeds it. `name`
    describes a record in the error message."""
    batches: list[bytearray] = []
    pending: list[Record] = []
    size_bytes = _BATCH_OVERHEAD_BYTES
    for record in records:
        key, value = encode(record)
        record_bytes = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if record_bytes + _BATCH_OVERHEAD_BYTES > max_bytes:
            raise TooLarge(
                f"a record of {name(record)} takes {record_bytes} bytes, but a batch of the topic "
                f"may have only {max_bytes}; raise its max.message.bytes"
            )
        if pending and size_bytes + record_bytes > max_bytes:
            batches.append(_build(pending, codec, written_by))
            pending, size_bytes = [], _BATCH_OVERHEAD_BYTES
        pending.append(Record(len(pending), now_ms, key, value))
        size_bytes += record_bytes
    if pending:
        batches.append(_build(pending, codec, written_by))
    return batches


def _build(records: list[Record], codec: Codec, written_by: WrittenBy) -> bytearray:
    return build_batch(
        records,
        codec=codec,
        producer_id=written_by.producer_id,
        producer_epoch=written_by.producer_epoch,
        transactional=written_by is not NO_TRANSACTION,
    )


# -- reading -------------------------------------------------------------------------------


def iter_sound_batches(
    data: bytes, report: Report
) -> Iterator[tuple[memoryview, BatchHeader] | None]:
    """Batches with a valid CRC. A batch without one is reported and yields None."""
    view = memoryview(data)
    try:
        for position, header in iter_headers(data):
            if is_crc_valid(data, position, header.size):
                yield view[position : position + header.size], header
            else:
                report(f"the batch at offset {header.base_offset} has a wrong CRC; skipping it")
                yield None
    except CorruptBatch as error:
        report(f"batch boundaries are lost; skipping the rest of this chunk: {error}")


def find_decoded(
    record: Record, decode: Callable[[bytes, bytes | None], R], report: Report
) -> R | None:
    if record.key is None:
        report(f"the record at offset {record.offset} has no key; skipping it")
        return None
    try:
        return decode(record.key, record.value)
    except UnknownKey as error:
        report(
            f"the record at offset {record.offset} is of an unknown kind; leaving it alone: {error}"
        )
    except MalformedMessage as error:
        report(f"the record at offset {record.offset} is damaged; skipping it: {error}")
    return None
