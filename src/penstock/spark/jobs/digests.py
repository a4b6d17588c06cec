"""A 64-bit digest of a record's content, so that records can be compared without a shuffle.

Runs in tasks, on numpy alone. Invariant: equal records have equal digests, in every process and on
every machine. Different records may collide, so a repeated digest only selects records to compare.
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
_LONG = 2048  # bytes; a longer key or value is hashed on its own, with CRC32C
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
_FOLD = np.uint64(32)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)


class DigestedColumns(NamedTuple):
    """The columns of a record that the digest covers."""

    columns: tuple[str, ...]  # of `key` and `value`
    skips_tombstones: bool


def digest_rows(rows: pa.RecordBatch, compared: DigestedColumns) -> Digests:
    """One digest per row. The partition index is part of it."""
    digests: Digests = rows.column("partition_index").to_numpy().astype(np.uint64)
    for name in compared.columns:
        digests = _add_column(digests, byte_column(rows.column(name), rows.num_rows))
    return digests


def comparable_rows(rows: pa.RecordBatch, compared: DigestedColumns) -> pa.RecordBatch:
    return rows.filter(rows.column("value").is_valid()) if compared.skips_tombstones else rows


def find_duplicate_digests(digests: Iterable[Digests]) -> Digests:
    """The digests that occur more than once, sorted."""
    together = np.sort(np.concatenate([np.empty(0, np.uint64), *digests]))
    return np.unique(together[1:][together[1:] == together[:-1]])


def is_among(digests: Digests, wanted: Digests) -> npt.NDArray[np.bool_]:
    """Tells for each digest whether it is in `wanted`, which is sorted and not empty."""
    indexes = np.minimum(np.searchsorted(wanted, digests), wanted.size - 1)
    return np.asarray(wanted[indexes] == digests)


def split(digests: Digests, shares: int) -> Sequence[Digests]:
    """Splits by value, so that equal digests end up in the same share."""
    of_share = (digests >> _FOLD) % np.uint64(shares)
    order = np.argsort(of_share, kind="stable")
    ends = np.cumsum(np.bincount(of_share.astype(np.int64), minlength=shares))
    return np.split(digests[order], ends[:-1])


def _add_column(digests: Digests, column: ByteColumn) -> Digests:
    digests = _mix(digests ^ (column.lengths - NULL).astype(np.uint64))
    is_short = column.lengths <= _LONG
    digests = _add_words(digests, column, np.flatnonzero((column.lengths > 0) & is_short))
    for row in np.flatnonzero(~is_short):
        checksum = crc32c(column.find(int(row)) or b"")
        digests[row] = _mix(digests[row : row + 1] ^ np.uint64(checksum))[0]
    return digests


def _add_words(digests: Digests, column: ByteColumn, rows: npt.NDArray[np.int64]) -> Digests:
    """Mixes in eight bytes of all rows at a time."""
    words = _words(column.data)
    starts, left, mixed = column.starts[rows], column.lengths[rows], digests[rows]
    while rows.size:
        mixed = _mix(mixed ^ (words[starts] & _MASKS[np.minimum(left, _WORD)]))
        has_more = left > _WORD
        if not has_more.all():
            digests[rows] = mixed
            rows, mixed = rows[has_more], mixed[has_more]
            starts, left = starts[has_more], left[has_more]
        starts, left = starts + _WORD, left - _WORD
    return digests


def _words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """For each byte, the eight bytes that start there."""
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    return np.ndarray((data.size + 1,), "<u8", padded, strides=(1,))


def _mix(digests: Digests) -> Digests:
    """Mixes both halves of each digest into each other.

    Folding only after the multiplication is not enough: a product carries upwards only, so many
    texts that differ in three letters would collide.
    """
    mixed = (digests ^ (digests >> _FOLD)) * _ODD
    mixed ^= mixed >> _FOLD
    return mixed
