"""The share of a sink's rows that each of its targets gets. Runs no query."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.spark.codec.ddl_columns import quoted
from penstock.spark.pipeline.merge_rows import DELETED
from penstock.spark.pipeline.problems import listed, suggest
from penstock.spark.pipeline.spec import (
    BranchTargets,
    LakeTarget,
    Merge,
    MergeKind,
    Options,
    SingleTarget,
    Sink,
    TopicTarget,
    branch_sinks,
)
from penstock.spark.pipeline.values import records_of
from penstock.spark.sink.null_headers import fill_null_headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ARRIVAL = ("_partition", "_offset")  # orders the rows of a key, which are in one partition
_RANK = "_penstock_rank"
_ROW_NUMBER = "_penstock_row_number"  # in the micro-batch: of equal rows, the last one counts
_HEADERS = "array<struct<key: string, value: binary>>"


class BadShare(ValueError):
    """The rows lack what their target needs."""


class Share(NamedTuple):
    name: str
    line: int
    where: str | None
    select: tuple[str, ...]
    target: SingleTarget
    options: Options


def shares_of(sink: Sink) -> list[Share]:
    if not isinstance(sink.target, BranchTargets):
        return [Share(sink.name, sink.line, None, (), sink.target, sink.options)]
    return [
        Share(
            part.name,
            branch.line,
            branch.where.text if branch.where else None,
            branch.select,
            branch.target,
            part.options,
        )
        for part, branch in zip(branch_sinks(sink), sink.target.branches, strict=True)
    ]


def share_of(rows: "DataFrame", share: Share) -> "DataFrame":
    """What the target takes: records, changes of a table, or rows as they are."""
    if share.where is not None:
        rows = rows.where(f.expr(share.where))
    if share.select:
        rows = rows.selectExpr(*share.select)
    if isinstance(share.target, TopicTarget):
        return _records(rows, share.target)
    if isinstance(share.target, LakeTarget) and share.target.merge is not None:
        return _changes(rows, share.target.merge)
    return rows


def _records(rows: "DataFrame", target: TopicTarget) -> "DataFrame":
    """Records with all columns that records can have, so that those of several topics fit."""
    records = fill_null_headers(records_of(rows, target))
    kinds = {"key": "binary", "value": "binary", "headers": _HEADERS, "partition": "int"}
    columns = [
        (f.col(name) if name in records.columns else f.lit(None)).cast(kind).alias(name)
        for name, kind in kinds.items()
        if name != "headers"
    ]
    headers = f.col("headers") if "headers" in records.columns else f.array().cast(_HEADERS)
    return records.select(*columns, headers.alias("headers"), f.lit(target.topic).alias("topic"))


def _changes(rows: "DataFrame", merge: Merge) -> "DataFrame":
    """The rows, with whether each deletes its key; of an upsert the last of each key."""
    for name in (*merge.keys, *([merge.order] if merge.order else [])):
        if name not in rows.columns:
            raise BadShare(
                f"{merge.kind}: there is no column {name!r}{suggest(name, rows.columns)}; there "
                f"are: {listed(rows.columns)}"
            )
    deletes = f.lit(False) if merge.delete is None else f.expr(merge.delete.text).cast("boolean")
    changes = rows.withColumn(DELETED, f.coalesce(deletes, f.lit(False)))
    arrival = arrival_order(changes.columns, merge)
    if merge.kind is MergeKind.SCD2 or not arrival or rows.isStreaming:
        return changes
    numbered = changes.withColumn(_ROW_NUMBER, f.monotonically_increasing_id())
    latest_first = [f.col(quoted(name)).desc() for name in (*arrival, _ROW_NUMBER)]
    window = Window.partitionBy(*map(quoted, merge.keys)).orderBy(*latest_first)
    ranked = numbered.withColumn(_RANK, f.row_number().over(window))
    return ranked.where(f.col(_RANK) == 1).drop(_RANK, _ROW_NUMBER)


def arrival_order(columns: Sequence[str], merge: Merge) -> list[str]:
    """By which columns the later of two rows of a key is known; empty if by none."""
    order = [merge.order] if merge.order else []
    return [*order, *(_ARRIVAL if "_offset" in columns else ())]
