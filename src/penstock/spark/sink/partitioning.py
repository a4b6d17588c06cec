"""Chooses a partition for each row like Kafka's default partitioner: by the hash of the key, and in
sticky runs for rows without a key, so that few large batches are sent instead of many small ones.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.spark.codec.bulk_path import BulkPath, choose_key_partitioner
from penstock.spark.codec.byte_columns import byte_column

# Rows per run: at 100 bytes each, about what Kafka's sticky partitioner sends to one partition.
STICKY_ROWS = 160


def partition_rows(
    keys: pa.Array | None,
    rows: int,
    partitions: int,
    *,
    sticky_start: int,
    path: BulkPath | None = None,
) -> npt.NDArray[np.int32]:
    """Rows without a key start at partition `sticky_start`; pass a different one on each call."""
    if keys is None or keys.null_count == rows:
        return _sticky_runs(rows, partitions, sticky_start)
    column = byte_column(keys, rows)
    partition_keys = choose_key_partitioner(path, column.data.size)
    chosen = partition_keys(column, partitions)
    without_key = np.flatnonzero(chosen < 0)
    chosen[without_key] = _sticky_runs(len(without_key), partitions, sticky_start)
    return chosen


def _sticky_runs(rows: int, partitions: int, sticky_start: int) -> npt.NDArray[np.int32]:
    runs = np.arange(rows, dtype=np.int64) // STICKY_ROWS
    return ((runs + sticky_start) % partitions).astype(np.int32)
