"""Records of an audit's ranges on Spark: as rows, or as digests alone, of which those come back
that are there twice.

Most topics have no record twice. Their records stay in the tasks that read them, and eight bytes
of each are compared; only what may be there twice is sent to be grouped and sorted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.spark.connect.connections import ClientSettings
from penstock.spark.jobs.audit_task import read_records
from penstock.spark.jobs.content import ROW_SCHEMA, Identity
from penstock.spark.jobs.digests import (
    DigestedColumns,
    Digests,
    compared_rows,
    digest_rows,
    find_twice,
    is_among,
    split,
)
from penstock.spark.jobs.range_audit import AuditRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHARE = 2_000_000  # digests that one task compares: 16 MB
_MOST_TWICE = 100_000  # digests that tasks are told; where more are there twice, all rows are sent
_UNEVEN = 8  # times as many as it ought to have: what one task may tell of these
_Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class RecordRows:
    """Of sound batches. `place` of a row is its partition's among `partitions`."""

    def __init__(
        self, spark: "SparkSession", asked: Sequence[AuditRange], settings: ClientSettings
    ) -> None:
        self._spark = spark
        self._asked = list(asked)
        self._settings = settings
        self.partitions = sorted({each.wanted.tp for each in asked})
        self.offsets = sum(each.wanted.size for each in asked)

    def all(self) -> "DataFrame":
        """Rows of `ROW_SCHEMA`."""
        return self._map(lambda rows: rows, ROW_SCHEMA)

    def those_of(self, digests: Digests, compared: DigestedColumns) -> "DataFrame":
        """As `all`, but only those that have one of these digests."""

        def choose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in batches:
                kept = rows.filter(pa.array(is_among(digest_rows(rows, compared), digests)))
                if kept.num_rows:
                    yield kept

        return self._map(choose, ROW_SCHEMA)

    def twice(self, compared: DigestedColumns) -> "DataFrame":
        """For `read_twice`."""
        shares = -(-self.offsets // _SHARE)
        most = -(-_MOST_TWICE * _UNEVEN // shares)

        def digest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = [digest_rows(compared_rows(rows, compared), compared) for rows in batches]
            for share, each in enumerate(split(np.concatenate([_NONE, *found]), shares)):
                if each.size:
                    yield _sent(share, each)

        def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sent = (each for batch in batches for each in batch.column(1).to_pylist())
            found = find_twice(np.frombuffer(each, "<u8") for each in sent)
            yield _sent(found.size, found[:most])

        digests = self._map(digest, _SENT)
        return digests.repartition(shares, "number").mapInArrow(find, _SENT)

    def _map(self, change: _Work, schema: str) -> "DataFrame":
        """A task for each range."""
        partitions, asked, settings = self.partitions, self._asked, self._settings

        def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    each = asked[number]
                    place = partitions.index(each.wanted.tp)
                    yield from change(read_records(each, place, settings))

        return self._spark.range(0, len(asked), 1, len(asked)).mapInArrow(run, schema)


def compared_of(identity: Identity) -> DigestedColumns | None:
    """None: what tells records apart is in neither key nor value. Headers and times are looked at
    where these are the same."""
    columns = tuple(name for name in ("key", "value") if name in identity.columns)
    # To delete what is deleted is nothing to tell of, unless somebody asks.
    return DigestedColumns(columns, not identity.is_given) if columns else None


def read_twice(rows: Sequence[tuple[int, bytes]]) -> Digests | None:
    """How many each task has found, and which of them it tells. None: too many to name."""
    told = np.concatenate([_NONE, *(np.frombuffer(each, "<u8") for _, each in rows)])
    if sum(count for count, _ in rows) > min(told.size, _MOST_TWICE):
        return None
    return np.sort(told)


_NONE = np.empty(0, np.uint64)
_SENT = "number bigint, digests binary"


def _sent(number: int, digests: Digests) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([number], pa.int64()), pa.array([digests.tobytes()], pa.binary())],
        ["number", "digests"],
    )
