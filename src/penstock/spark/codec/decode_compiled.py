"""Decodes records to columns with the kernels of `decode_kernels`, whole runs of batches per call.

Importing this needs numba, and loads or compiles the kernels. If a kernel rejects a batch,
`protocol.records` finds out why. All large buffers come from Arrow's pool, which keeps freed
memory: fresh pages from the operating system would cost more than the decoding.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch
from penstock.protocol.records import iter_records, walk_records
from penstock.spark.codec import decode_kernels as kernels
from penstock.spark.codec.row_columns import COLUMN_TYPES, MAX_CHUNK_BYTES, MAX_ROWS, RowChunk
from penstock.spark.codec.visible_batches import CorruptAt, FetchedBatch, OffsetBounds

_Bytes = npt.NDArray[np.uint8]
_Row = tuple[int, int, int, int, int, int]
_Number = TypeVar("_Number", np.uint8, np.int32, np.int64)

_HEADER_TYPE = COLUMN_TYPES["headers"].value_type


def decode_batches(
    fetched: memoryview,
    batches: Sequence[FetchedBatch],
    wanted: OffsetBounds,
    columns: Sequence[str],
) -> Iterator[RowChunk]:
    for run in _runs(fetched, batches):
        yield from _decode_run(fetched, run, wanted, columns)


def _runs(fetched: memoryview, batches: Sequence[FetchedBatch]) -> Iterator["_Run"]:
    run = _Run(fetched)
    for batch in batches:
        decompressed = _decompress(batch, fetched) if batch.header.codec else None
        if not run.takes(batch, decompressed):
            yield run
            run = _Run(fetched)
        run.add(batch, decompressed)
    if run.batches:
        yield run


def _decompress(batch: FetchedBatch, fetched: memoryview) -> bytes:
    try:
        return walk_records(batch.view(fetched))[0]
    except CorruptBatch as error:
        raise CorruptAt(batch.header.base_offset, error.reason) from None


class _Run:
    """Batches that go to the kernels together, because they have the same timestamp type and are
    all compressed or all not. At most MAX_CHUNK_BYTES, or one batch, so that 32 bits count its
    bytes."""

    def __init__(self, fetched: memoryview) -> None:
        self.batches: list[FetchedBatch] = []
        self.rows: list[_Row] = []  # of the kernels' table, one per batch
        self._fetched = fetched
        self._decompressed: list[bytes] = []
        self._bytes = 0

    def takes(self, batch: FetchedBatch, decompressed: bytes | None) -> bool:
        if not self.batches:
            return True
        if batch.header.is_append_time != self.is_append_time:
            return False
        size = batch.header.size if decompressed is None else len(decompressed)
        is_alike = (decompressed is None) == (not self._decompressed)
        return is_alike and self._bytes + size <= MAX_CHUNK_BYTES

    def add(self, batch: FetchedBatch, decompressed: bytes | None) -> None:
        position, header = batch
        self.batches.append(batch)
        if decompressed is None:
            end = position + header.size
            self.rows.append(_table_row(header, position + HEADER_BYTES, end))
            self._bytes += header.size
        else:
            end = self._bytes + len(decompressed)
            self.rows.append(_table_row(header, self._bytes, end))
            self._decompressed.append(decompressed)
            self._bytes = end

    @property
    def is_append_time(self) -> bool:
        return self.batches[0].header.is_append_time

    def data(self) -> _Bytes:
        """The bytes that the positions in `rows` refer to. Read-only, as the kernels require."""
        data = self._join() if self._decompressed else self._fetched
        return np.frombuffer(data.toreadonly(), np.uint8)

    def _join(self) -> memoryview:
        joined = memoryview(pa.allocate_buffer(self._bytes)).cast("B")
        for content, row in zip(self._decompressed, self.rows, strict=True):
            joined[row[kernels.START] : row[kernels.END]] = content
        return joined


def _table_row(header: BatchHeader, start: int, end: int) -> _Row:
    timestamp = header.max_timestamp if header.is_append_time else header.base_timestamp
    delta, count = header.last_offset_delta, header.record_count
    return start, end, header.base_offset, timestamp, delta, count


def _decode_run(
    fetched: memoryview, run: _Run, wanted: OffsetBounds, columns: Sequence[str]
) -> Iterator[RowChunk]:
    data, table = run.data(), np.array(run.rows, np.int64)
    cursor = np.array([0, table[0, kernels.START], 0, -1], np.int64)
    capacity = min(int(table[:, kernels.COUNT].sum()), MAX_ROWS)
    while cursor[kernels.BATCH] < len(table):
        bytes_left = int(table[-1, kernels.END] - cursor[kernels.POSITION])
        output = _Output(capacity, bytes_left, columns)
        rows = output.fill(data, table, cursor, run.is_append_time, wanted)
        if rows < 0:
            raise _explain(fetched, run.batches[-1 - rows])
        if rows:
            arrays = output.arrays(data, rows, columns)
            yield RowChunk(rows, run.is_append_time, int(output.offsets[rows - 1]), arrays)


def _explain(fetched: memoryview, batch: FetchedBatch) -> CorruptAt:
    reason = "its records are corrupt"
    try:
        for _ in iter_records(batch.view(fetched)):
            pass
    except CorruptBatch as error:
        reason = error.reason
    return CorruptAt(batch.header.base_offset, reason)


class _Output:
    """Arrays for one chunk, as large as it can get. Untouched memory costs nothing."""

    def __init__(self, capacity: int, data_bytes: int, columns: Sequence[str]) -> None:
        self._offsets, self.offsets = _allocate(capacity, np.int64)
        self._timestamps, self._timestamp_array = _allocate(capacity, np.int64)
        self._keys = _BinaryOutput(capacity, data_bytes if "key" in columns else -1)
        self._values = _BinaryOutput(capacity, data_bytes if "value" in columns else -1)
        has_headers = "headers" in columns
        self._header_ends, self._header_end_array = _allocate(
            capacity + 1 if has_headers else 1, np.int32
        )
        self._header_positions = np.empty(capacity if has_headers else 0, np.int64)
        self._header_valid = _all_valid(capacity if has_headers else 0)
        self._totals = np.zeros(8, np.int64)

    def fill(
        self,
        data: _Bytes,
        table: npt.NDArray[np.int64],
        cursor: npt.NDArray[np.int64],
        is_append_time: bool,
        wanted: OffsetBounds,
    ) -> int:
        return kernels.decode_rows(
            data,
            table,
            cursor,
            is_append_time,
            wanted.start,
            wanted.end,
            self.offsets,
            self._timestamp_array,
            *self._keys.arguments,
            *self._values.arguments,
            self._header_end_array,
            self._header_positions,
            self._header_valid,
            self._totals,
        )

    def arrays(self, data: _Bytes, rows: int, columns: Sequence[str]) -> dict[str, pa.Array]:
        totals = self._totals
        arrays: dict[str, pa.Array] = {}
        if "key" in columns:
            arrays["key"] = self._keys.array(
                rows, totals[kernels.KEY_BYTES], totals[kernels.NULL_KEYS]
            )
        if "value" in columns:
            arrays["value"] = self._values.array(
                rows, totals[kernels.VALUE_BYTES], totals[kernels.NULL_VALUES]
            )
        if "offset" in columns:
            arrays["offset"] = _numbers("offset", self._offsets, rows)
        if "timestamp" in columns:
            arrays["timestamp"] = _numbers("timestamp", self._timestamps, rows)
        if "headers" in columns:
            arrays["headers"] = self._headers(data, rows)
        return arrays

    def _headers(self, data: _Bytes, rows: int) -> pa.Array:
        totals = self._totals
        count = int(totals[kernels.HEADERS])
        keys = _BinaryOutput(count, int(totals[kernels.HEADER_KEY_BYTES]))
        values = _BinaryOutput(count, int(totals[kernels.HEADER_VALUE_BYTES]))
        nulls = kernels.copy_headers(
            data,
            rows,
            self._header_end_array,
            self._header_positions,
            keys.ends,
            keys.data,
            values.ends,
            values.data,
            values.valid,
        )
        items = pa.StructArray.from_arrays(
            [
                _as_text(keys.array(count, keys.data.size, 0)),
                values.array(count, values.data.size, nulls),
            ],
            fields=list(_HEADER_TYPE),
        )
        missing = int(totals[kernels.WITHOUT_HEADERS])
        validity = pa.py_buffer(self._header_valid) if missing else None
        return pa.Array.from_buffers(
            COLUMN_TYPES["headers"],
            rows,
            [validity, self._header_ends],
            missing,
            children=[items],
        )


class _BinaryOutput:
    """One column of bytes; a size of -1 means that it is not wanted."""

    def __init__(self, capacity: int, data_bytes: int) -> None:
        self.is_wanted = data_bytes >= 0
        self._ends, self.ends = _allocate(capacity + 1 if self.is_wanted else 1, np.int32)
        self._data, self.data = _allocate(max(data_bytes, 0), np.uint8)
        self.valid = _all_valid(capacity if self.is_wanted else 0)

    @property
    def arguments(self) -> tuple[bool, npt.NDArray[np.int32], _Bytes, _Bytes]:
        return self.is_wanted, self.ends, self.data, self.valid

    def array(self, rows: int, used: int, nulls: int) -> pa.Array:
        validity = pa.py_buffer(self.valid) if nulls else None
        content = [validity, self._ends, self._data.slice(0, used)]
        return pa.Array.from_buffers(pa.binary(), rows, content, int(nulls))


def _allocate(count: int, kind: type[_Number]) -> tuple[pa.Buffer, npt.NDArray[_Number]]:
    """The same memory as an Arrow buffer and as a numpy array."""
    buffer = pa.allocate_buffer(count * np.dtype(kind).itemsize)
    return buffer, np.frombuffer(buffer, kind)


def _all_valid(count: int) -> _Bytes:
    return np.full((count + 7) // 8, 0xFF, np.uint8)


def _numbers(name: str, buffer: pa.Buffer, rows: int) -> pa.Array:
    return pa.Array.from_buffers(COLUMN_TYPES[name], rows, [None, buffer], 0)


def _as_text(keys: pa.Array) -> pa.Array:
    """Header keys as strings. They are UTF-8 by convention only."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts: list[bytes] = keys.to_pylist()
        return pa.array([text.decode("utf-8", "replace") for text in texts], pa.string())
