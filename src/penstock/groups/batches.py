"""Records of groups as batches for the log, and back from the log's bytes. No state, no I/O.

Reading never fails: what is damaged or of a kind not known is told and passed over, so that one bad
record costs itself and not all the groups beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.groups.records import GroupRecord, UnknownKey, decode_record, encode_record
from penstock.protocol.batch import BatchHeader, CorruptBatch, is_crc_valid, iter_headers
from penstock.protocol.compression import Codec
from penstock.protocol.control import read_end_marker
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.records import Record, build_batch, iter_records

# What a record costs beside key and value, at most; a batch's own header.
_RECORD_OVERHEAD_BYTES = 32
_BATCH_OVERHEAD_BYTES = 61

Report = Callable[[str], None]


class TooLarge(Exception):
    """A single record does not fit in a batch of the topic."""


class Replayed(NamedTuple):
    record: GroupRecord
    offset: int
    producer_id: int


class TransactionEnd(NamedTuple):
    producer_id: int
    commit: bool


Entry = Replayed | TransactionEnd


# -- writing -------------------------------------------------------------------------------


def build_batches(
    records: Sequence[GroupRecord], *, now_ms: int, max_bytes: int, codec: Codec = Codec.NONE
) -> list[bytearray]:
    """As few as the limit allows, in order; TooLarge where one record alone exceeds it."""
    batches: list[bytearray] = []
    gathered: list[Record] = []
    size_bytes = _BATCH_OVERHEAD_BYTES
    for record in records:
        key, value = encode_record(record)
        record_bytes = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if record_bytes + _BATCH_OVERHEAD_BYTES > max_bytes:
            raise TooLarge(
                f"a record of group {record.key.group!r} takes {record_bytes} bytes, the topic's "
                f"batches may have {max_bytes}; raise its max.message.bytes"
            )
        if gathered and size_bytes + record_bytes > max_bytes:
            batches.append(build_batch(gathered, codec=codec))
            gathered, size_bytes = [], _BATCH_OVERHEAD_BYTES
        gathered.append(Record(len(gathered), now_ms, key, value))
        size_bytes += record_bytes
    if gathered:
        batches.append(build_batch(gathered, codec=codec))
    return batches


# -- reading -------------------------------------------------------------------------------


def read_batches(data: bytes, report: Report) -> Iterator[Entry]:
    """What the log's bytes say, in order. Damage is reported, and what can be read goes on."""
    view = memoryview(data)
    try:
        for position, header in iter_headers(data):
            batch = view[position : position + header.size]
            if is_crc_valid(data, position, header.size):
                yield from _read_batch(batch, header, report)
            else:
                report(f"the batch at offset {header.base_offset} is damaged; it is passed over")
    except CorruptBatch as error:
        report(f"batches cannot be told apart any more, the rest is passed over: {error}")


def _read_batch(batch: memoryview, header: BatchHeader, report: Report) -> Iterator[Entry]:
    try:
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None:
                yield TransactionEnd(header.producer_id, marker.commit)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in iter_records(batch):
            decoded = _read_record(record, report)
            if decoded is not None:
                yield Replayed(decoded, record.offset, producer_id)
    except CorruptBatch as error:
        report(f"the batch at offset {header.base_offset} is passed over from there: {error}")


def _read_record(record: Record, report: Report) -> GroupRecord | None:
    if record.key is None:
        report(f"the record at offset {record.offset} has no key; it is passed over")
        return None
    try:
        return decode_record(record.key, record.value)
    except UnknownKey as error:
        report(f"the record at offset {record.offset} is left alone: {error}")
    except MalformedMessage as error:
        report(f"the record at offset {record.offset} is damaged and passed over: {error}")
    return None
