"""Encodes records of groups as batches, and decodes them from log bytes. No I/O.

Reading never fails, as in `runtime.record_batches`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.coordinators.group.records import GroupRecord, decode_record, encode_record
from penstock.coordinators.runtime import record_batches as batches
from penstock.coordinators.runtime.dependencies import Report
from penstock.coordinators.runtime.record_batches import (
    NO_TRANSACTION,
    WrittenBy,
    find_decoded,
    iter_sound_batches,
)
from penstock.model.ids import NO_PRODUCER_ID
from penstock.protocol.batch import BatchHeader, CorruptBatch
from penstock.protocol.compression import Codec
from penstock.protocol.control import read_end_marker
from penstock.protocol.records import Record, iter_records


class Replayed(NamedTuple):
    record: GroupRecord
    offset: int
    producer_id: int


class TransactionEnd(NamedTuple):
    producer_id: int
    commit: bool


Entry = Replayed | TransactionEnd
Latest = dict[bytes, tuple[bytes | None, int]]  # key -> its last value, and the offset of that

RECORDS_PER_STOP = 32
# The prefixes of the offset records that we write, and the length of a value without metadata.
_OFFSET_KEY = b"\x00\x01"
_OFFSET_VALUE = b"\x00\x03"
_OFFSET_VALUE_BYTES = 24


# -- writing -------------------------------------------------------------------------------


def build_batches(
    records: Sequence[GroupRecord],
    *,
    now_ms: int,
    max_bytes: int,
    codec: Codec = Codec.NONE,
    written_by: WrittenBy = NO_TRANSACTION,
) -> list[bytearray]:
    return batches.build_batches(
        records,
        encode_record,
        lambda record: f"group {record.key.group!r}",
        now_ms=now_ms,
        max_bytes=max_bytes,
        codec=codec,
        written_by=written_by,
    )


# -- reading -------------------------------------------------------------------------------


def read_batches(data: bytes, report: Report) -> Iterator[Entry]:
    """All entries, in order. Damage is reported and skipped."""
    for sound in iter_sound_batches(data, report):
        if sound is not None:
            yield from _read_batch(*sound, report)


class OffsetsLoader:
    """A `runtime.loader.Reader` that decodes only the last offset of each key."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._latest: Latest = {}

    def read(self, data: bytes) -> Iterator[Entry | None]:
        return read_latest(data, self._latest, self._report)

    def rest(self) -> Iterator[Entry]:
        return take_latest(self._latest, self._report)


def read_latest(data: bytes, latest: Latest, report: Report) -> Iterator[Entry | None]:
    """Like `read_batches`, for a whole log: only the last offset of each key is decoded.

    Most of a log consists of offsets that were overwritten later. They are collected in `latest`,
    and yielded before a transactional batch, because their order matters there, or by `take_latest`
    at the end. None is not an entry, only a point where loading may yield.
    """
    for sound in iter_sound_batches(data, report):
        yield None
        if sound is None:
            continue
        batch, header = sound
        if header.is_transactional or header.is_control:
            yield from take_latest(latest, report)
            yield from _read_batch(batch, header, report)
        else:
            yield from _collect_batch(batch, header, latest, report)


def take_latest(latest: Latest, report: Report) -> Iterator[Entry]:
    collected = list(latest.items())
    latest.clear()
    for key, (value, offset) in collected:
        decoded = _read_record(Record(offset, -1, key, value), report)
        if decoded is not None:
            yield Replayed(decoded, offset, NO_PRODUCER_ID)


def _collect_batch(
    batch: memoryview, header: BatchHeader, latest: Latest, report: Report
) -> Iterator[Entry | None]:
    try:
        for record in iter_records(batch):
            key = record.key
            if key is not None and key[:2] == _OFFSET_KEY and _is_offset(record.value):
                latest[key] = record.value, record.offset
                if record.offset % RECORDS_PER_STOP == 0:
                    yield None
                continue
            decoded = _read_record(record, report)
            if decoded is not None:
                latest.pop(key or b"", None)
                yield Replayed(decoded, record.offset, NO_PRODUCER_ID)
    except CorruptBatch as error:
        report(f"skipping the rest of the batch at offset {header.base_offset}: {error}")


def _is_offset(value: bytes | None) -> bool:
    """Whether this is an offset record as we write it, because a value that cannot be decoded must
    not replace one that can. A tombstone is not: it also removes pending offsets, so it must keep
    its order."""
    if value is None:
        return False
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
        report(f"skipping the rest of the batch at offset {header.base_offset}: {error}")


def _read_record(record: Record, report: Report) -> GroupRecord | None:
    return find_decoded(record, decode_record, report)
