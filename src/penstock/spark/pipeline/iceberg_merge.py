"""Writes a sink's rows into an Iceberg table with the package `pyiceberg`: no jars.

The tables of a folder share a catalog, `catalog.db` beside them (SQLite). The batch is a property
of the table that the same commit changes.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, BooleanExpression, In
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, Transaction

from penstock.spark.pipeline.lake_table import BatchMark
from penstock.spark.pipeline.merge_rows import not_of_keys, storable

NAMESPACE = "penstock"
_BATCH = "penstock.batch.{}"
_MIXED: Any = {"promote_options": "permissive"}  # columns that one lacks are null
_SETTINGS = {"commit.retry.num-retries": "0", "write.metadata.delete-after-commit.enabled": "true"}


class IcebergMerges:
    """A LakeTable."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def is_written(self, mark: BatchMark) -> bool:
        return int(self._table.properties.get(_BATCH.format(mark.query), -1)) >= mark.batch

    def read(self, columns: Sequence[str] | None, changes: pa.Table, key: str) -> pa.Table:
        wanted = pc.unique(changes.column(key)).to_pylist()
        fields = ("*",) if columns is None else tuple(columns)
        schema = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        if not wanted:
            rows = schema.empty_table()
            return storable(rows if columns is None else rows.select(list(columns)))
        return storable(
            self._table.scan(row_filter=_is_in(key, wanted), selected_fields=fields).to_arrow()
        )

    def append(self, rows: pa.Table, mark: BatchMark | None) -> None:
        with self._table.transaction() as transaction:
            transaction.append(self._fitted(rows))
            transaction.set_properties(_marked(mark))

    def merge(
        self, rows: pa.Table, deleted: pa.Table, keys: Sequence[str], mark: BatchMark | None
    ) -> None:
        gone = pa.concat_tables([rows.select(list(keys)), deleted.select(list(keys))])
        with self._table.transaction() as transaction:
            if gone.num_rows and self._table.current_snapshot() is not None:
                rows = pa.concat_tables([rows, self._delete(transaction, gone, keys)], **_MIXED)
            if rows.num_rows:
                transaction.append(self._fitted(rows))
            transaction.set_properties(_marked(mark))

    def _delete(self, transaction: Transaction, gone: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Deletes the rows with these keys. Returns rows that are deleted with them, and stay:
        keys of several columns are found by each column's values, because an expression with a
        term per key takes minutes from a thousand keys on."""
        condition = _all_of([_is_in(key, pc.unique(gone.column(key)).to_pylist()) for key in keys])
        stay = gone.slice(0, 0)
        if len(keys) > 1:
            matching = storable(self._table.scan(row_filter=condition).to_arrow())
            stay = not_of_keys(matching, gone, keys)
        _delete(transaction, condition)
        return stay

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """With the table's columns in its order; those that the rows lack are null."""
        schema = storable(
            schema_to_pyarrow(self._table.schema(), include_field_ids=False).empty_table()
        ).schema
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)


def open_iceberg(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> IcebergMerges:
    """Creates the table if it is missing, and adds columns that it lacks."""
    location = Path(path.removeprefix("file://")).absolute()
    location.parent.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(
        NAMESPACE, uri=f"sqlite:///{location.parent / 'catalog.db'}", warehouse=str(location.parent)
    )
    name = (NAMESPACE, location.name)
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        with (
            catalog.create_table_transaction(
                name, schema, location=str(location), properties=_SETTINGS
            ) as transaction,
            transaction.update_spec() as update,
        ):
            for column in partition_by:
                update.add_identity(column)
        return IcebergMerges(catalog.load_table(name))
    if set(schema.names) - set(table.schema().column_names):
        with table.update_schema() as change:
            change.union_by_name(schema)
    return IcebergMerges(table)


def _delete(transaction: Transaction, rows: BooleanExpression) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Delete operation did not match any records")
        transaction.delete(rows)


def _is_in(key: str, values: Sequence[Any]) -> BooleanExpression:
    expression: Any = In  # pydantic's types know only keywords
    return expression(key, values)  # type: ignore[no-any-return]


def _all_of(conditions: Sequence[BooleanExpression]) -> BooleanExpression:
    return conditions[0] if len(conditions) == 1 else And(*conditions)


def _marked(mark: BatchMark | None) -> dict[str, str]:
    return {} if mark is None else {_BATCH.format(mark.query): str(mark.batch)}
