"""Records of groups as batches for the log, and back from the log's bytes. No state, no I/O.

Reading never fails: what is damaged or of a kind not known is told and passed over, so that one bad
record costs itself and not all the groups beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.groups.records import GroupRecord, UnknownKey, decode_record, encode_record
from penstock.model.ids import NO_PRODUCER_ID
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
Latest = dict[bytes, tuple[bytes | None, int]]  # key -> its last value, and where that stands

RECORDS_A_STOP = 32
# How the records of offsets begin that we write, and their length without the note.
_OFFSET_KEY = b"\x00\x01"
_OFFSET_VALUE = b"\x00\x03"
_OFFSET_VALUE_BYTES = 24


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


def skim_batches(data: bytes, latest: Latest, report: Report) -> Iterator[Entry | None]:
    """As `read_batches`, for a whole log: of offsets only the last of each key is decoded.

    Most of a log is offsets that were committed anew. They are gathered in `latest`, and are due
    when a transaction comes, whose order with them counts, or with `take_latest` at the end. None
    is nothing: a place to stop for a moment.
    """
    view = memoryview(data)
    try:
        for position, header in iter_headers(data):
            yield None
            batch = view[position : position + header.size]
            if not is_crc_valid(data, position, header.size):
                report(f"the batch at offset {header.base_offset} is damaged; it is passed over")
            elif header.is_transactional or header.is_control:
                yield from take_latest(latest, report)
                yield from _read_batch(batch, header, report)
            else:
                yield from _skim_batch(batch, header, latest, report)
    except CorruptBatch as error:
        report(f"batches cannot be told apart any more, the rest is passed over: {error}")


def take_latest(latest: Latest, report: Report) -> Iterator[Entry]:
    gathered = list(latest.items())
    latest.clear()
    for key, (value, offset) in gathered:
        decoded = _read_record(Record(offset, -1, key, value), report)
        if decoded is not None:
            yield Replayed(decoded, offset, NO_PRODUCER_ID)


def _skim_batch(
    batch: memoryview, header: BatchHeader, latest: Latest, report: Report
) -> Iterator[Entry | None]:
    try:
        for record in iter_records(batch):
            key = record.key
            if key is not None and key[:2] == _OFFSET_KEY and _is_sound(record.value):
                latest[key] = record.value, record.offset
                if record.offset % RECORDS_A_STOP == 0:
                    yield None
                continue
            decoded = _read_record(record, report)
            if decoded is not None:
                latest.pop(key or b"", None)
                yield Replayed(decoded, record.offset, NO_PRODUCER_ID)
    except CorruptBatch as error:
        report(f"the batch at offset {header.base_offset} is passed over from there: {error}")


def _is_sound(value: bytes | None) -> bool:
    """A tombstone, or an offset as we write it: what cannot be read must not replace what can."""
    if value is None:
        return True
    is_ours = len(value) >= _OFFSET_VALUE_BYTES and value[:2] == _OFFSET_VALUE
    return is_ours and len(value) == _OFFSET_VALUE_BYTES + int.from_bytes(value[14:16], "big")


def _read_batch(batch: memoryview, header: BatchHeader, report: Report) -> Iterator[Entry]:
    try:
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None:
                yield TransactionEnd(header.producer_id, marker.commit)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
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
