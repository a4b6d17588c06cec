"""The records of an audit's ranges on Spark: as rows, or as digests of which only duplicates are
returned.

Most topics have no duplicates. Their records stay in the tasks that read them, and only eight bytes
per record are compared; only possible duplicates are shuffled to be grouped and sorted.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.spark.connect.connections import ClientSettings
from penstock.spark.jobs.audit_task import read_columns, read_records
from penstock.spark.jobs.content import ROW_SCHEMA, Identity
from penstock.spark.jobs.digests import (
    DigestedColumns,
    Digests,
    comparable_rows,
    digest_rows,
    find_duplicate_digests,
    is_among,
    split,
)
from penstock.spark.jobs.range_audit import AuditRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHARE = 2_000_000  # digests that one task compares: 16 MB
_MAX_DUPLICATES = 100_000  # digests sent to tasks; with more duplicates, all rows are shuffled
_UNEVEN = 8  # a task may return this many times its even part of the duplicates
_Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_Read = Callable[[AuditRange, int, ClientSettings], Iterator[pa.RecordBatch]]


class RecordRows:
    """Records of sound batches. A row's `partition_index` is an index into `partitions`."""

    def __init__(
        self, spark: "SparkSession", tasks: Sequence[AuditRange], settings: ClientSettings
    ) -> None:
        self._spark = spark
        self._tasks = list(tasks)
        self._settings = settings
        self.partitions = sorted({task.wanted.tp for task in tasks})
        self.offsets = sum(task.wanted.size for task in tasks)

    def all(self) -> "DataFrame":
        """All records as rows of `ROW_SCHEMA`."""
        return self._map(lambda rows: rows, ROW_SCHEMA)

    def with_digests(self, digests: Digests, columns: DigestedColumns) -> "DataFrame":
        """Like `all`, but only records with one of these digests."""

        def choose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in batches:
                kept = rows.filter(pa.array(is_among(digest_rows(rows, columns), digests)))
                if kept.num_rows:
                    yield kept

        return self._map(choose, ROW_SCHEMA)

    def duplicate_digests(self, columns: DigestedColumns) -> "DataFrame":
        """The digests that occur more than once, as input to `merge_duplicate_digests`."""
        shares = -(-self.offsets // _SHARE)
        most = -(-_MAX_DUPLICATES * _UNEVEN // shares)

        def digest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            parts = [digest_rows(comparable_rows(rows, columns), columns) for rows in batches]
            for share, digests in enumerate(split(np.concatenate([_NONE, *parts]), shares)):
                if digests.size:
                    yield _sent(share, digests)

        def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sent = (digests for batch in batches for digests in batch.column(1).to_pylist())
            duplicates = find_duplicate_digests(np.frombuffer(digests, "<u8") for digests in sent)
            yield _sent(duplicates.size, duplicates[:most])

        # Tombstones are told by their value, whatever is compared.
        names = tuple(dict.fromkeys((*columns.columns, "value")))
        digests = self._map(digest, _SENT, partial(read_columns, names=names))
        return digests.repartition(shares, "number").mapInArrow(find, _SENT)

    def _map(self, change: _Work, schema: str, read: _Read = read_records) -> "DataFrame":
        """Runs one task per range."""
        partitions, tasks, settings = self.partitions, self._tasks, self._settings

        def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    task = tasks[number]
                    partition_index = partitions.index(task.wanted.tp)
                    yield from change(read(task, partition_index, settings))

        return self._spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, schema)


def choose_digested_columns(identity: Identity) -> DigestedColumns | None:
    """Key and value, as far as they are part of the identity; None if neither is.

    Headers and timestamps are compared only where key and value match.
    """
    columns = tuple(name for name in ("key", "value") if name in identity.columns)
    # A repeated tombstone changes nothing, so it is reported only with --identity.
    return DigestedColumns(columns, not identity.is_given) if columns else None


def merge_duplicate_digests(rows: Sequence[tuple[int, bytes]]) -> Digests | None:
    """Merges (number of duplicates, digests returned) of all tasks. None: too many duplicates, or a
    task has returned only some of its own."""
    digests = np.concatenate([_NONE, *(np.frombuffer(returned, "<u8") for _, returned in rows)])
    if sum(count for count, _ in rows) > min(digests.size, _MAX_DUPLICATES):
        return None
    return np.sort(digests)


_NONE = np.empty(0, np.uint64)
_SENT = "number bigint, digests binary"


def _sent(number: int, digests: Digests) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([number], pa.int64()), pa.array([digests.tobytes()], pa.binary())],
        ["number", "digests"],
    )
