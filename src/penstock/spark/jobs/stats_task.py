"""The work of stats on executors: a task reads a range once and counts, another joins the keys of
all ranges that fall to it.

Rows of `COUNTED`: one for each range, with its counts, and one for each of its keys. Rows of
`JOINED`: those of ranges as they are, numbers of different keys by partition and by topic, and the
most frequent keys.
"""

import pickle
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
JOINED = f"{COUNTED}, keys bigint, partitions bigint"
_JOINED_SCHEMA = _SCHEMA.append(pa.field("keys", pa.int64())).append(
    pa.field("partitions", pa.int64())
)


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


def join_keys(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Turns rows of `COUNTED` into rows of `JOINED`; all rows of a key have to be among them."""
    table = pa.Table.from_batches(batches, _SCHEMA)
    is_range = table["counts"].is_valid()
    yield from _joined(table.filter(is_range))
    keys = table.filter(pc.invert(is_range)).select(["topic", "partition", "key", "records"])
    if not keys.num_rows:
        return
    of_partitions = keys.group_by(["topic", "partition", "key"]).aggregate([("records", "sum")])
    numbers = of_partitions.group_by(["topic", "partition"]).aggregate([("key", "count")])
    yield from _joined(numbers.rename_columns({"key_count": "keys"}))
    of_topics = of_partitions.group_by(["topic", "key"]).aggregate(
        [("records_sum", "sum"), ("partition", "count")]
    )
    of_topics = of_topics.rename_columns(
        {"records_sum_sum": "records", "partition_count": "partitions"}
    )
    numbers = of_topics.group_by("topic").aggregate([("key", "count")])
    yield from _joined(numbers.rename_columns({"key_count": "keys"}))
    for topic in numbers["topic"].to_pylist():
        of_topic = of_topics.filter(pc.equal(of_topics["topic"], topic))
        order = [("records", "descending"), ("key", "ascending")]
        yield from _joined(of_topic.take(pc.select_k_unstable(of_topic, most, order)))


def _joined(rows: pa.Table) -> list[pa.RecordBatch]:
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in _JOINED_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=_JOINED_SCHEMA).to_batches()  # type: ignore[no-any-return]
