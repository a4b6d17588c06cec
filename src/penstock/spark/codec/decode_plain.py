"""Decodes records to columns in plain Python, for processes without numba and for the first rows.

Gives the same rows as `decode_compiled`, about forty times slower.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from penstock.protocol.batch import CorruptBatch
from penstock.protocol.records import Record, RecordHeaders, iter_records
from penstock.protocol.varint import MAX_INT64, MIN_INT64
from penstock.spark.codec.row_columns import COLUMN_TYPES, MAX_CHUNK_BYTES, MAX_ROWS, RowChunk
from penstock.spark.codec.visible_batches import CorruptAt, FetchedBatch, OffsetBounds


def decode_batches(
    fetched: memoryview,
    batches: Sequence[FetchedBatch],
    wanted: OffsetBounds,
    columns: Sequence[str],
) -> Iterator[RowChunk]:
    for is_append_time, alike in groupby(batches, key=_is_append_time):
        for records in _cut(_iter_rows(fetched, alike, wanted)):
            arrays = {name: _ARRAYS[name](records) for name in columns}
            yield RowChunk(len(records), is_append_time, records[-1].offset, arrays)


def _is_append_time(batch: FetchedBatch) -> bool:
    return batch.header.is_append_time


def _iter_rows(
    fetched: memoryview, batches: Iterable[FetchedBatch], wanted: OffsetBounds
) -> Iterator[Record]:
    start, end = wanted
    for batch in batches:
        try:
            for record in iter_records(batch.view(fetched)):
                if start <= record.offset < end:
                    yield record
        except CorruptBatch as error:
            raise CorruptAt(batch.header.base_offset, error.reason) from None


def _cut(records: Iterable[Record]) -> Iterator[list[Record]]:
    chunk: list[Record] = []
    used = 0
    for record in records:
        size = _size(record)
        if chunk and (len(chunk) == MAX_ROWS or used + size > MAX_CHUNK_BYTES):
            yield chunk
            chunk, used = [], 0
        chunk.append(record)
        used += size
    if chunk:
        yield chunk


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        size += len(key) + len(value or b"")
    return size


def _keys(records: list[Record]) -> Any:
    return pa.array([record.key for record in records], COLUMN_TYPES["key"])


def _values(records: list[Record]) -> Any:
    return pa.array([record.value for record in records], COLUMN_TYPES["value"])


def _offsets(records: list[Record]) -> Any:
    return pa.array([record.offset for record in records], COLUMN_TYPES["offset"])


def _timestamps(records: list[Record]) -> Any:
    """Clamped to 64 bits of microseconds."""
    microseconds = [
        max(MIN_INT64, min(MAX_INT64, record.timestamp_ms * 1000)) for record in records
    ]
    return pa.array(microseconds, pa.int64()).cast(COLUMN_TYPES["timestamp"])


def _headers(records: list[Record]) -> Any:
    return pa.array([_header_items(record.headers) for record in records], COLUMN_TYPES["headers"])


def _header_items(headers: RecordHeaders) -> list[tuple[str, bytes | None]] | None:
    return [(_readable(key), value) for key, value in headers] or None


def _readable(key: str) -> str:
    """The key as Java clients show it, with replacement characters for invalid UTF-8."""
    if key.isascii():
        return key
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_ARRAYS = {
    "key": _keys,
    "value": _values,
    "offset": _offsets,
    "timestamp": _timestamps,
    "headers": _headers,
}
