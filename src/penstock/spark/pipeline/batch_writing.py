"""Writes each micro-batch of a sink to tables without jars, or to several targets at once.

The micro-batch is computed once. Every target counts it once, however often it is run: topics by
the sink's transactions, all in one; tables by the batch in their commit; files by a folder for the
batch.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.connector_options import sink_options, store_values_of, values_of
from penstock.spark.pipeline.lake_table import BatchMark, write_lake
from penstock.spark.pipeline.shares import Share, arrival_order, share_of, shares_of
from penstock.spark.pipeline.spec import FileTarget, FormatTarget, LakeTarget, Sink, TopicTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORMAT = "penstock"
_QUERY_ID = "sql.streaming.queryId"  # a local property of Spark's jobs
BATCH_FOLDER = "penstock_batch"  # one that begins with `_` is hidden for pyarrow and pandas


def write_batches(sink: Sink, bootstrap: str) -> Callable[["DataFrame", int], None]:
    """For `foreachBatch`."""
    shares = shares_of(sink)

    def write(rows: "DataFrame", batch: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        assert query is not None
        _write(rows, sink, shares, bootstrap, BatchMark(query, batch))

    return write


def write_once_to_all(rows: "DataFrame", sink: Sink, bootstrap: str) -> None:
    """Rows that are no stream: each run writes them again."""
    _write(rows, sink, shares_of(sink), bootstrap, None)


def _write(
    rows: "DataFrame",
    sink: Sink,
    shares: Sequence[Share],
    bootstrap: str,
    mark: BatchMark | None,
) -> None:
    rows = rows.persist() if len(shares) > 1 else rows
    try:
        _write_records(rows, sink, shares, bootstrap, mark)
        for share in shares:
            if isinstance(share.target, LakeTarget):
                _write_lake(rows, share, share.target, mark)
            elif not isinstance(share.target, TopicTarget):
                _write_rows(rows, share, mark)
    finally:
        if len(shares) > 1:
            rows.unpersist()


def _write_records(
    rows: "DataFrame",
    sink: Sink,
    shares: Sequence[Share],
    bootstrap: str,
    mark: BatchMark | None,
) -> None:
    """All topics in one write, because a micro-batch has one transaction."""
    records: DataFrame | None = None
    target: TopicTarget | None = None
    for share in shares:
        if isinstance(share.target, TopicTarget):
            target, more = share.target, share_of(rows, share)
            records = more if records is None else records.unionByName(more)
    if records is None or target is None:
        return
    options = sink_options(target, sink, bootstrap)
    del options["topic"]  # every row has its own
    if mark is not None:
        options["oncePerMicroBatch"] = "true"
    records.write.format(_FORMAT).options(**options).mode("append").save()


def _write_lake(
    rows: "DataFrame", share: Share, target: LakeTarget, mark: BatchMark | None
) -> None:
    changes = share_of(rows, share).toArrow()
    if target.merge is not None:
        # Sorted here: Spark would compute the rows once more to divide them into ranges.
        arrival = arrival_order(changes.column_names, target.merge)
        if arrival:
            changes = changes.sort_by([(name, "ascending") for name in arrival])
        else:
            _check_unique(changes, target.merge.keys)
    write_lake(target, changes, mark, store_values_of(share.options))


def _check_unique(rows: "pa.Table", keys: Sequence[str]) -> None:
    groups = rows.select(list(keys)).group_by(list(keys)).aggregate([])
    if groups.num_rows < rows.num_rows:
        raise SparkSourceError(
            f"{rows.num_rows - groups.num_rows} rows have the key ({', '.join(keys)}) of another "
            "row, and nothing says which is the later: give the merge an `order:`, a column"
        )


def _write_rows(rows: "DataFrame", share: Share, mark: BatchMark | None) -> None:
    target = share.target
    writer = share_of(rows, share).write.options(**values_of(share.options))
    if isinstance(target, FormatTarget):
        writer.format(target.format).mode("append").save()
        return
    assert isinstance(target, FileTarget)
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)
    writer = writer.format(target.format)
    if mark is None:
        writer.mode("append").save(target.path)
        return
    # A batch that is run again replaces its own folder.
    folder = f"{target.path.rstrip('/')}/{BATCH_FOLDER}={mark.query[:8]}-{mark.batch}"
    writer.mode("overwrite").save(folder)
