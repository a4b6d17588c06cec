"""The work of a stats task on an executor: read a range once, and return what it counted.

Rows of `COUNTED`: one for the range, with its counts, and one for each of its keys.
"""

import pickle
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.spark.jobs.stats_counts import RangeCounter, RangeCounts
from penstock.spark.source.plan import OffsetRange
from penstock.spark.source.read_task import ReadSettings, read_range

COLUMNS = ("timestamp", "key", "value")
COUNTED = "topic int, partition int, task int, counts binary, key binary, records bigint"
_SCHEMA = pa.schema(
    [
        ("topic", pa.int32()),
        ("partition", pa.int32()),
        ("task", pa.int32()),
        ("counts", pa.binary()),
        ("key", pa.binary()),
        ("records", pa.int64()),
    ]
)
_MOST_ROWS = 100_000  # in a batch


class StatsRange(NamedTuple):
    """The work of one task."""

    wanted: OffsetRange
    number: int
    topic_index: int


def count_range(task: StatsRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    counter = RangeCounter()
    for rows in read_range(task.wanted, settings):
        counter.take(rows)
    yield _rows(task, pa.array([pickle.dumps(counter.counts())], pa.binary()), None, None)
    keys, records = counter.keys()
    for start in range(0, len(keys), _MOST_ROWS):
        yield _rows(task, None, keys.slice(start, _MOST_ROWS), records.slice(start, _MOST_ROWS))


def read_counts(pickled: bytes) -> RangeCounts:
    counts = pickle.loads(pickled)  # noqa: S301 (of our own task)
    assert isinstance(counts, RangeCounts)
    return counts


def _rows(
    task: StatsRange, counts: pa.Array | None, keys: pa.Array | None, records: pa.Array | None
) -> pa.RecordBatch:
    size = len(next(column for column in (counts, keys) if column is not None))
    constants = (task.topic_index, task.wanted.tp.partition, task.number)
    columns = [
        *(pa.array(np.full(size, constant, np.int32)) for constant in constants),
        *(
            pa.nulls(size, field.type) if column is None else column
            for column, field in zip((counts, keys, records), list(_SCHEMA)[3:], strict=True)
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
