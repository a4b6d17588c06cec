"""Encodes the Arrow rows of one topic as record batches per partition.

Knows no connection and no Spark; the caller chooses the partitions. Invariant: each row is in
exactly one batch, and the rows of a partition keep their order.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.protocol.batch import HEADER_BYTES
from penstock.protocol.compression import Codec
from penstock.spark.codec.bulk_path import BulkPath, WriteRows, choose_encoder
from penstock.spark.codec.byte_columns import byte_column, header_column
from penstock.spark.codec.open_batch import OpenBatch, RowColumns

# A sink fills a batch per partition at once: beyond this total, all are sent as they are.
MAX_OPEN_BYTES = 64 * 1024 * 1024


class EncodedBatch(NamedTuple):
    partition: int
    data: bytearray  # one whole batch
    records: int


class Encoder:
    """`batch_bytes` bounds a batch before compression; a larger record gets a batch of its own. All
    rows of one `add` have the timestamp of its start."""

    def __init__(
        self,
        *,
        codec: Codec,
        batch_bytes: int,
        timestamp_ms: Callable[[], int],
        path: BulkPath | None = None,
    ) -> None:
        self._codec = codec
        self._records_bytes = max(1, batch_bytes - HEADER_BYTES)
        self._timestamp_ms = timestamp_ms
        self._path = path
        self._open: dict[int, OpenBatch] = {}

    def add(
        self,
        partitions: npt.NDArray[np.int32],
        key: pa.Array | None,
        value: pa.Array | None,
        headers: pa.Array | None,
    ) -> Iterator[EncodedBatch]:
        """The batches that became full. The caller must exhaust the iterator."""
        rows = len(partitions)
        columns = RowColumns(
            byte_column(key, rows), byte_column(value, rows), header_column(headers, rows)
        )
        new_bytes = columns.key.data.size + columns.value.data.size
        write_rows = choose_encoder(self._path, new_bytes)
        timestamp_ms = self._timestamp_ms()
        for partition, order in _by_partition(partitions):
            yield from self._write(write_rows, columns, partition, order, timestamp_ms)
        if sum(batch.used for batch in self._open.values()) > MAX_OPEN_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[EncodedBatch]:
        """The remaining rows, in batches that are not full."""
        for partition, batch in self._open.items():
            if batch.records:
                yield self._seal(partition, batch)

    def _write(
        self,
        write_rows: WriteRows,
        columns: RowColumns,
        partition: int,
        order: npt.NDArray[np.int64],
        timestamp_ms: int,
    ) -> Iterator[EncodedBatch]:
        batch = self._open.get(partition)
        if batch is None:
            batch = self._open[partition] = OpenBatch(self._records_bytes)
        first = 0
        while first < len(order):
            delta = batch.timestamp_delta(timestamp_ms)
            written, used = write_rows(batch, columns, order, first, delta)
            batch.add(written, used, timestamp_ms)
            first += written
            if first == len(order):
                return
            if batch.records:
                yield self._seal(partition, batch)
            else:
                yield self._alone(write_rows, columns, partition, order[first : first + 1])
                first += 1

    def _alone(
        self,
        write_rows: WriteRows,
        columns: RowColumns,
        partition: int,
        row: npt.NDArray[np.int64],
    ) -> EncodedBatch:
        """A record that does not fit into a batch of the usual size."""
        batch = OpenBatch(columns.max_record_bytes(int(row[0])))
        timestamp_ms = self._open[partition].base_timestamp_ms
        delta = batch.timestamp_delta(timestamp_ms)
        batch.add(*write_rows(batch, columns, row, 0, delta), timestamp_ms)
        return self._seal(partition, batch)

    def _seal(self, partition: int, batch: OpenBatch) -> EncodedBatch:
        records = batch.records
        return EncodedBatch(partition, batch.seal(self._codec), records)


def _by_partition(
    partitions: npt.NDArray[np.int32],
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each partition with the indexes of its rows, in order."""
    if not len(partitions):
        return
    if int(partitions.min()) < 0:
        raise ValueError(f"negative partition {int(partitions.min())}")
    # numpy sorts 16-bit integers by radix, eight times as fast.
    narrow = partitions.astype(np.uint16) if int(partitions.max()) < 2**16 else partitions
    order = np.argsort(narrow, kind="stable")
    ordered = narrow[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for part in np.split(order, cuts):
        yield int(partitions[part[0]]), part
