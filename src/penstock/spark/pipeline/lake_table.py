"""A Delta or Iceberg table that a sink appends to or merges into, without jars.

Invariant: a micro-batch is one commit that carries the query and the batch; a batch that is there
is not written again.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline import merge_rows
from penstock.spark.pipeline.spec import LakeFormat, LakeTarget, Merge, MergeKind


class BatchMark(NamedTuple):
    """Which micro-batch a commit is."""

    query: str  # Spark's id of the query, which its checkpoint keeps
    batch: int


class LakeTable(Protocol):
    """A table as of its last commit. The methods that write make one commit."""

    def is_written(self, mark: BatchMark) -> bool: ...

    def read(self, columns: Sequence[str] | None, changes: pa.Table, key: str) -> pa.Table:
        """Rows whose `key` is among that of the changes; all columns if None."""
        ...

    def append(self, rows: pa.Table, mark: BatchMark | None) -> None: ...

    def merge(
        self, rows: pa.Table, deleted: pa.Table, keys: Sequence[str], mark: BatchMark | None
    ) -> None:
        """Rows replace those of the same keys or are added; deleted ones are removed."""
        ...


def write_lake(
    target: LakeTarget, rows: pa.Table, mark: BatchMark | None, options: Mapping[str, str]
) -> None:
    """`rows` are in the order of their arrival; for merges with the column `DELETED`. Raises
    SparkSourceError if they do not fit."""
    try:
        _write(target, merge_rows.storable(rows), mark, options)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise SparkSourceError(
            f"the rows do not fit the table in {target.path}: {reason}"
        ) from None


def _write(
    target: LakeTarget, rows: pa.Table, mark: BatchMark | None, options: Mapping[str, str]
) -> None:
    merge = target.merge
    if merge is not None:
        merge_rows.check_keys(rows, merge.keys)
    table = _open(target, _table_schema(rows, merge), options)
    if mark is not None and table.is_written(mark):
        return
    if merge is None:
        table.append(rows, mark)
    elif merge.kind is MergeKind.UPSERT:
        _upsert(table, rows, merge, mark)
    else:
        assert merge.order is not None
        stored = merge_rows.of_keys(table.read(None, rows, merge.keys[0]), rows, merge.keys)
        versions = merge_rows.next_versions(stored, rows, merge.keys, merge.order)
        keys = [*merge.keys, merge_rows.VALID_FROM]
        table.merge(versions, versions.slice(0, 0), keys, mark)


def _upsert(table: LakeTable, rows: pa.Table, merge: Merge, mark: BatchMark | None) -> None:
    if merge.order is not None and rows.num_rows:
        stored = table.read([*merge.keys, merge.order], rows, merge.keys[0])
        rows = merge_rows.not_older(rows, stored, merge.keys, merge.order)
    kept, deleted = merge_rows.split_deleted(rows)
    table.merge(kept, deleted.select(list(merge.keys)), merge.keys, mark)


def _table_schema(rows: pa.Table, merge: Merge | None) -> pa.Schema:
    if merge is None:
        return rows.schema
    schema = rows.drop_columns([merge_rows.DELETED]).schema
    if merge.kind is MergeKind.UPSERT:
        return schema
    assert merge.order is not None
    return merge_rows.versions_schema(schema, merge.order)


def _open(target: LakeTarget, schema: pa.Schema, options: Mapping[str, str]) -> LakeTable:
    """Imports the format's package lazily: it takes a second."""
    try:
        if target.format is LakeFormat.DELTA:
            from penstock.spark.pipeline.delta_merge import open_delta

            return open_delta(target.path, schema, target.partition_by, options)
        from penstock.spark.pipeline.iceberg_merge import open_iceberg

        return open_iceberg(target.path, schema, target.partition_by)
    except ImportError as error:
        raise SparkSourceError(
            f"{target.format} tables need {error.name}, which comes with: "
            "pip install 'penstock[tables]'"
        ) from None
