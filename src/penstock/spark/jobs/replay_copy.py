"""Copies ranges of topics, read and written by the same Python tasks: no row passes through Spark's
JVM, which would take most of the time.

The sink's two-phase commit holds for all of it: every record is written once, or none is.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.jobs.running import JobWatch, run_watched
from penstock.spark.sink.exactly_once.batch_commit import abort_batch, commit_batch
from penstock.spark.sink.exactly_once.prepared_write import PreparedTransaction, write_prepared
from penstock.spark.sink.exactly_once.transactional_ids import MicroBatchId, new_batch_query
from penstock.spark.source.read_task import ReadSettings, read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.replay_function import RecordFunction
    from penstock.spark.sink.options import SinkOptions
    from penstock.spark.source.plan import OffsetRange

_BATCH_ID = 0  # the only one
_STRAGGLERS_END_WITHIN_S = 5.0  # tasks of a job that has failed


class Copy(NamedTuple):
    """What all tasks of a copy have in common."""

    reading: ReadSettings
    writing: "SinkOptions"
    function: "RecordFunction | None"  # is given all columns
    keeps_partitions: bool
    query: str  # of the two-phase commit


class _Copied(NamedTuple):
    records: int
    prepared: PreparedTransaction | None


def new_copy(
    reading: ReadSettings,
    writing: "SinkOptions",
    *,
    function: "RecordFunction | None",
    keeps_partitions: bool,
) -> Copy:
    return Copy(reading, writing, function, keeps_partitions, new_batch_query())


def run_copy(
    spark: "SparkSession", ranges: "Sequence[OffsetRange]", copy: Copy, step: str, watch: JobWatch
) -> int:
    """Returns the number of records written, all of which are visible then. One task a range."""
    tasks = spark.sparkContext.parallelize(ranges, len(ranges))
    try:
        results = tasks.map(lambda wanted: copy_range(wanted, copy))
        copied: list[_Copied] = run_watched(spark, step, watch, results.collect)
    except BaseException:  # also Ctrl-C
        abort_batch(copy.writing, copy.query, _BATCH_ID, watch_s=_STRAGGLERS_END_WITHIN_S)
        raise
    commit_batch(copy.writing, copy.query, _BATCH_ID, (task.prepared for task in copied))
    return sum(task.records for task in copied)


def copy_range(wanted: "OffsetRange", copy: Copy) -> _Copied:
    """One task, on an executor. Another attempt has a transaction of its own."""
    from penstock.spark.jobs.replay_function import OUTPUT_NAMES, change_batches
    from penstock.spark.sink.columns import SinkColumns

    batches: Iterable[pa.RecordBatch] = read_range(wanted, copy.reading)
    names = copy.reading.columns
    if copy.function is not None:
        batches, names = change_batches(copy.function, batches), OUTPUT_NAMES
    columns = SinkColumns(
        key=names.index("key"),
        value=names.index("value"),
        headers=names.index("headers"),
        topic=-1,
        partition=names.index("partition") if copy.keeps_partitions else -1,
    )
    micro_batch = MicroBatchId(copy.query, None, _BATCH_ID)
    written, prepared = write_prepared(batches, copy.writing, columns, micro_batch)
    return _Copied(written.rows, prepared)
