"""Encodes columns to records with the kernels of `encode_kernels`. Importing it needs numba."""

import numpy as np
import numpy.typing as npt

from penstock.spark.codec import encode_kernels as kernels
from penstock.spark.codec.byte_columns import ByteColumn
from penstock.spark.codec.open_batch import OpenBatch, RowColumns


def write_rows(
    batch: OpenBatch,
    columns: RowColumns,
    order: npt.NDArray[np.int64],
    first: int,
    timestamp_delta: int,
) -> tuple[int, int]:
    """Write rows order[first:] as records while they fit: (rows written, bytes of the batch
    used)."""
    headers = columns.headers
    return kernels.encode_rows(
        order,
        first,
        batch.records,
        timestamp_delta,
        *columns.key,
        *columns.value,
        headers.starts,
        headers.counts,
        *headers.keys,
        *headers.values,
        batch.out,
        batch.used,
    )


def partition_keys(keys: ByteColumn, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each row with a key; -1 for null."""
    chosen = np.empty(len(keys.starts), np.int32)
    kernels.partition_keys(*keys, partitions, chosen)
    return chosen
