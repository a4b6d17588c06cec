"""A batch that is being filled with records of one partition, then sealed.

One of the two encoders writes records into `out`; the header is built at the end.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.protocol.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    BatchHeader,
)
from penstock.protocol.compression import Codec
from penstock.protocol.records import change_codec
from penstock.protocol.varint import MAX_INT32
from penstock.spark.codec.byte_columns import ByteColumn, HeaderColumn
from penstock.spark.errors import SparkSourceError

_MAX_VARINTS = 40  # bytes for length, attributes, deltas, two lengths and the header count
_MAX_HEADER_VARINTS = 10


class RowColumns(NamedTuple):
    key: ByteColumn
    value: ByteColumn
    headers: HeaderColumn

    def max_record_bytes(self, row: int) -> int:
        """An upper bound for the size of this row's record."""
        first, count = int(self.headers.starts[row]), int(self.headers.counts[row])
        headers = slice(first, first + count)
        lengths = (
            self.key.lengths[row : row + 1],
            self.value.lengths[row : row + 1],
            self.headers.keys.lengths[headers],
            self.headers.values.lengths[headers],
        )
        contents = sum(int(np.maximum(part, 0).sum()) for part in lengths)
        needed = contents + _MAX_VARINTS + _MAX_HEADER_VARINTS * count
        if needed > MAX_INT32:
            raise SparkSourceError(
                f"a row has {contents} bytes of key, value and headers: a batch cannot hold 2 GiB"
            )
        return needed


class OpenBatch:
    """Owned by one encoder. `used` bytes of `out` hold `records` records."""

    def __init__(self, capacity: int) -> None:
        self.out: npt.NDArray[np.uint8] = np.empty(capacity, np.uint8)
        self.used = 0
        self.records = 0
        self.base_timestamp_ms = 0  # of the first record
        self.max_timestamp_ms = 0

    def timestamp_delta(self, timestamp_ms: int) -> int:
        """The timestamp delta of a record in this batch; the first record sets the base."""
        if not self.records:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        return timestamp_ms - self.base_timestamp_ms

    def add(self, records: int, used: int, timestamp_ms: int) -> None:
        """Account for `records` more, written up to `used`."""
        if records:
            self.records += records
            self.used = used
            self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)

    def seal(self, codec: Codec) -> bytearray:
        """The whole batch; this one is empty afterwards. Data that does not shrink stays
        uncompressed, so a batch is never larger than its records."""
        encoded = self.out.data[: self.used]
        header = self._header()
        batch = change_codec(header, encoded, codec)
        if codec != Codec.NONE and len(batch) >= HEADER_BYTES + self.used:
            batch = change_codec(header, encoded, Codec.NONE)
        self.used = self.records = 0
        return batch

    def _header(self) -> BatchHeader:
        return BatchHeader(
            base_offset=0,
            batch_length=HEADER_BYTES - LOG_OVERHEAD + self.used,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=self.records - 1,
            base_timestamp=self.base_timestamp_ms,
            max_timestamp=self.max_timestamp_ms,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=NO_SEQUENCE,
            record_count=self.records,
        )
