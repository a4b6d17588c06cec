"""A number for what a record holds, so that records can be compared without being sent anywhere.

Runs in tasks, on numpy alone. Invariant: records that hold the same have the same digest, in every
process and on every machine. Others may share one by chance: who finds one twice must look at the
records.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from penstock.spark.codec.byte_columns import NULL, ByteColumn, byte_column

Digests = npt.NDArray[np.uint64]

_WORD = 8  # bytes
_LONG = 2048  # bytes of a key or value; longer ones are taken as a whole, one by one
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
_FOLD = np.uint64(32)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)


class DigestedColumns(NamedTuple):
    """What of records is digested."""

    columns: tuple[str, ...]  # of `key` and `value`
    leaves_out_tombstones: bool


def digest_rows(rows: pa.RecordBatch, compared: DigestedColumns) -> Digests:
    """One for each row. Rows of different places do not have the same."""
    digests: Digests = rows.column("place").to_numpy().astype(np.uint64)
    for name in compared.columns:
        digests = _add_column(digests, byte_column(rows.column(name), rows.num_rows))
    return digests


def compared_rows(rows: pa.RecordBatch, compared: DigestedColumns) -> pa.RecordBatch:
    return rows.filter(rows.column("value").is_valid()) if compared.leaves_out_tombstones else rows


def find_twice(digests: Iterable[Digests]) -> Digests:
    """Those that are there more than once, sorted."""
    together = np.sort(np.concatenate([np.empty(0, np.uint64), *digests]))
    return np.unique(together[1:][together[1:] == together[:-1]])


def is_among(digests: Digests, wanted: Digests) -> npt.NDArray[np.bool_]:
    """`wanted` is sorted and has some."""
    places = np.minimum(np.searchsorted(wanted, digests), wanted.size - 1)
    return np.asarray(wanted[places] == digests)


def split(digests: Digests, shares: int) -> Sequence[Digests]:
    """By their own value, so that equal ones come into the same share."""
    of_share = (digests >> _FOLD) % np.uint64(shares)
    order = np.argsort(of_share, kind="stable")
    ends = np.cumsum(np.bincount(of_share.astype(np.int64), minlength=shares))
    return np.split(digests[order], ends[:-1])


def _add_column(digests: Digests, column: ByteColumn) -> Digests:
    digests = _mix(digests ^ (column.lengths - NULL).astype(np.uint64))
    is_short = column.lengths <= _LONG
    digests = _add_words(digests, column, np.flatnonzero((column.lengths > 0) & is_short))
    for row in np.flatnonzero(~is_short):
        found = crc32c(column.find(int(row)) or b"")
        digests[row] = _mix(digests[row : row + 1] ^ np.uint64(found))[0]
    return digests


def _add_words(digests: Digests, column: ByteColumn, rows: npt.NDArray[np.int64]) -> Digests:
    """Eight bytes of all rows at a time."""
    words = _words(column.data)
    starts, left, found = column.starts[rows], column.lengths[rows], digests[rows]
    while rows.size:
        found = _mix(found ^ (words[starts] & _MASKS[np.minimum(left, _WORD)]))
        goes_on = left > _WORD
        if not goes_on.all():
            digests[rows] = found
            rows, found = rows[goes_on], found[goes_on]
            starts, left = starts[goes_on], left[goes_on]
        starts, left = starts + _WORD, left - _WORD
    return digests


def _words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """The eight bytes from each byte on."""
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    return np.ndarray((data.size + 1,), "<u8", padded, strides=(1,))


def _mix(digests: Digests) -> Digests:
    """Both halves into each other. To fold only afterwards is not enough: a product carries upwards
    alone, and many texts that differ in three letters would have the same digest."""
    mixed = (digests ^ (digests >> _FOLD)) * _ODD
    mixed ^= mixed >> _FOLD
    return mixed
