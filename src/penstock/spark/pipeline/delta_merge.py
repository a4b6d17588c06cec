"""Writes a sink's rows into a Delta table with the package `deltalake`: no jars.

The batch is Delta's application transaction of the same commit.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import CommitProperties, Transaction

from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.lake_table import BatchMark
from penstock.spark.pipeline.merge_rows import DELETED

_APPLICATION = "penstock/pipeline/{}"


class DeltaMerges:
    """A LakeTable."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    def is_written(self, mark: BatchMark) -> bool:
        version = self._table.transaction_version(_APPLICATION.format(mark.query))
        return version is not None and version >= mark.batch

    def read(self, columns: Sequence[str] | None, changes: pa.Table, key: str) -> pa.Table:
        wanted = pc.unique(changes.column(key)).to_pylist()
        if not wanted:
            return self._empty(columns)
        rows = self._table.to_pyarrow_table(
            columns=None if columns is None else list(columns),
            filters=_comparable(key, changes.schema.field(key).type).isin(wanted),
        )
        return rows.cast(self._empty(columns).schema)

    def _empty(self, columns: Sequence[str] | None) -> pa.Table:
        from penstock.spark.pipeline.merge_rows import storable

        schema = pa.schema(self._table.schema().to_arrow())
        rows = storable(schema.empty_table())
        return rows if columns is None else rows.select(list(columns))

    def append(self, rows: pa.Table, mark: BatchMark | None) -> None:
        write_deltalake(
            self._table, rows, mode="append", schema_mode="merge", commit_properties=_marked(mark)
        )

    def merge(
        self, rows: pa.Table, deleted: pa.Table, keys: Sequence[str], mark: BatchMark | None
    ) -> None:
        columns = rows.column_names
        source = pa.concat_tables(
            [_flagged(rows, False), _flagged(deleted, True)], promote_options="default"
        )
        values = {_quoted(name): f"source.{_quoted(name)}" for name in columns}
        same = " AND ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in keys)
        flag = f"source.{_quoted(DELETED)}"
        (
            self._table.merge(
                source,
                predicate=same,
                source_alias="source",
                target_alias="target",
                merge_schema=False,
                commit_properties=_marked(mark),
            )
            .when_matched_delete(predicate=flag)
            .when_matched_update(values, predicate=f"NOT {flag}")
            .when_not_matched_insert(values, predicate=f"NOT {flag}")
            .execute()
        )


def open_delta(
    path: str, schema: pa.Schema, partition_by: Sequence[str], options: Mapping[str, str]
) -> DeltaMerges:
    """Creates the table if it is missing, and adds columns that it lacks."""
    settings = dict(options) or None
    try:
        if DeltaTable.is_deltatable(path, settings):
            table = DeltaTable(path, storage_options=settings)
            _add_columns(table, schema)
        else:
            table = DeltaTable.create(
                path,
                schema=Schema.from_arrow(schema),
                partition_by=list(partition_by),
                storage_options=settings,
            )
    except DeltaError as error:
        raise SparkSourceError(f"the Delta table in {path} cannot be opened: {error}") from None
    return DeltaMerges(table)


def _add_columns(table: DeltaTable, schema: pa.Schema) -> None:
    stored = {field.name for field in table.schema().fields}
    missing = [field for field in Schema.from_arrow(schema).fields if field.name not in stored]
    if missing:
        table.alter.add_columns(missing)


def _comparable(key: str, kind: pa.DataType) -> pc.Expression:
    """Merges write text and bytes as views of Arrow, which its filters cannot compare with others:
    a filter on a cast is evaluated after the rows are read, in the type that it names."""
    column = pc.field(key)
    if pa.types.is_string(kind):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary(kind) else column


def _marked(mark: BatchMark | None) -> CommitProperties:
    if mark is None:
        return CommitProperties()
    transaction = Transaction(_APPLICATION.format(mark.query), mark.batch)
    return CommitProperties(app_transactions=[transaction], max_commit_retries=0)


def _flagged(rows: pa.Table, is_deleted: bool) -> pa.Table:
    return rows.append_column(DELETED, pa.array([is_deleted] * rows.num_rows, pa.bool_()))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
