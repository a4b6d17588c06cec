"""Arrow columns as numpy arrays, in one form for every type that Spark may send: the bytes, and the
start and length of each row.

Does not copy the bytes. Invariant: `starts` and `lengths` stay within `data`; null has length -1.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.spark.errors import SparkSourceError

NULL = -1
_NO_BYTES = np.frombuffer(b"", np.uint8)  # read-only, like Arrow's


class ByteColumn(NamedTuple):
    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    def find(self, row: int) -> bytes | None:
        length = int(self.lengths[row])
        if length == NULL:
            return None
        start = int(self.starts[row])
        return self.data[start : start + length].tobytes()


class HeaderColumn(NamedTuple):
    """The headers of all rows one after another, and which of them belong to each row."""

    starts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    keys: ByteColumn
    values: ByteColumn


def byte_column(array: pa.Array | pa.ChunkedArray | None, rows: int) -> ByteColumn:
    """Convert binary or string, large or not; None is a column of nulls."""
    if array is None or not rows:
        return ByteColumn(_NO_BYTES, np.zeros(rows, np.int64), np.full(rows, NULL, np.int64))
    array = _binary(array)
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    ends = _ends(array, np.int64 if wide else np.int32)
    lengths = np.diff(ends)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    data = array.buffers()[2]
    return ByteColumn(_NO_BYTES if data is None else _view(data), ends[:-1], lengths)


def header_column(array: pa.Array | pa.ChunkedArray | None, rows: int) -> HeaderColumn:
    """Convert lists of (key, value); a null list has no headers."""
    if array is None or not rows:
        zeros, empty = np.zeros(rows, np.int64), byte_column(None, 0)
        return HeaderColumn(zeros, zeros, empty, empty)
    array = _whole(array)
    counts = np.diff(array.offsets.to_numpy().astype(np.int64))
    if array.null_count:
        counts[array.is_null().to_numpy(zero_copy_only=False)] = 0
    items = array.flatten()  # without values hidden under null lists
    keys, values = items.flatten()
    if keys.null_count:
        raise SparkSourceError(
            "column `headers` has a header with a null key: every header needs a key"
        )
    return HeaderColumn(
        np.cumsum(counts) - counts,
        counts,
        byte_column(keys, len(items)),
        byte_column(values, len(items)),
    )


def _whole(array: Any) -> Any:
    if not isinstance(array, pa.ChunkedArray):
        return array
    joined = array.combine_chunks()
    return joined if not isinstance(joined, pa.ChunkedArray) else pa.concat_arrays(joined.chunks)


def _binary(array: Any) -> Any:
    array = _whole(array)
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return array
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return array
    return array.cast(pa.large_binary())


def _ends(array: Any, kind: type[np.int32] | type[np.int64]) -> npt.NDArray[np.int64]:
    ends = np.frombuffer(array.buffers()[1], kind)
    return ends[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _view(buffer: pa.Buffer) -> npt.NDArray[np.uint8]:
    view = np.frombuffer(buffer, np.uint8)
    view.flags.writeable = False
    return view
