"""A coordinator's records as batches for its log, and back from the log's bytes. No state, no I/O.

Reading never fails: what is damaged or of a kind not known is told and passed over, so that one bad
record costs itself and not all that stands beside it.
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

# What a record costs beside key and value, at most; a batch's own header.
_RECORD_OVERHEAD_BYTES = 32
_BATCH_OVERHEAD_BYTES = 61


class TooLarge(Exception):
    """A single record does not fit in a batch of the topic."""


class WrittenBy(NamedTuple):
    """The producer in whose transaction the records stand, until a marker ends it."""

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
    """As few as the limit allows, in order; TooLarge where one record alone exceeds it. `name`
    says whose a record is, to people."""
    batches: list[bytearray] = []
    gathered: list[Record] = []
    size_bytes = _BATCH_OVERHEAD_BYTES
    for record in records:
        key, value = encode(record)
        record_bytes = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if record_bytes + _BATCH_OVERHEAD_BYTES > max_bytes:
            raise TooLarge(
                f"a record of {name(record)} takes {record_bytes} bytes, the topic's "
                f"batches may have {max_bytes}; raise its max.message.bytes"
            )
        if gathered and size_bytes + record_bytes > max_bytes:
            batches.append(_build(gathered, codec, written_by))
            gathered, size_bytes = [], _BATCH_OVERHEAD_BYTES
        gathered.append(Record(len(gathered), now_ms, key, value))
        size_bytes += record_bytes
    if gathered:
        batches.append(_build(gathered, codec, written_by))
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
    """Batches whose bytes are as they were written; None for one that is not, which is told."""
    view = memoryview(data)
    try:
        for position, header in iter_headers(data):
            if is_crc_valid(data, position, header.size):
                yield view[position : position + header.size], header
            else:
                report(f"the batch at offset {header.base_offset} is damaged; it is passed over")
                yield None
    except CorruptBatch as error:
        report(f"batches cannot be told apart any more, the rest is passed over: {error}")


def find_decoded(
    record: Record, decode: Callable[[bytes, bytes | None], R], report: Report
) -> R | None:
    if record.key is None:
        report(f"the record at offset {record.offset} has no key; it is passed over")
        return None
    try:
        return decode(record.key, record.value)
    except UnknownKey as error:
        report(f"the record at offset {record.offset} is left alone: {error}")
    except MalformedMessage as error:
        report(f"the record at offset {record.offset} is damaged and passed over: {error}")
    return None
