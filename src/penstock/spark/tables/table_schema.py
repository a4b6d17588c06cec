"""The columns of a table: the record's position, its content, and the columns of its value.

Pure. Names of record columns start with `_`; a value's field with such a name gets no column.
Invariant: a table's schema is a function of its specification and its value columns.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.spark.codec.row_columns import COLUMN_TYPES
from penstock.spark.tables.arrow_types import arrow_fields
from penstock.spark.tables.errors import BadTableOption
from penstock.spark.tables.partitioning import (
    PartitionField,
    check_partition_fields,
    computed_fields,
    parse_partitioning,
)
from penstock.spark.tables.spec import TableSpec, ValueKind

PARTITION, OFFSET, TIMESTAMP = "_partition", "_offset", "_timestamp"
KEY, VALUE, ERROR = "_key", "_value", "_error"
# The table's name of each source column; the topic is the same for the whole table.
SOURCE_COLUMNS = {
    PARTITION: "partition",
    OFFSET: "offset",
    TIMESTAMP: "timestamp",
    "_timestamp_type": "timestampType",
    KEY: "key",
    "_headers": "headers",
    VALUE: "value",
}
_RECORD = [pa.field(name, COLUMN_TYPES[source]) for name, source in SOURCE_COLUMNS.items()]
_TEXT = "value"  # the only column of text values
# Characters that Delta, Parquet readers or Spark do not allow in names.
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=.`")


def record_fields(spec: TableSpec) -> list[pa.Field]:
    return [field for field in _RECORD if spec.keeps_value or field.name != VALUE]


def value_fields(spec: TableSpec) -> list[pa.Field]:
    """The columns that the specification gives; inferred ones are added later."""
    match spec.value:
        case ValueKind.TEXT:
            return [pa.field(_TEXT, pa.string())]
        case ValueKind.AVRO:
            return _checked(_avro_fields(spec.avro))
        case ValueKind.JSON if spec.columns is not None:
            return _checked(arrow_fields(spec.columns))
        case _:
            return []


def partition_fields_of(spec: TableSpec) -> tuple[PartitionField, ...]:
    """An upsert table is partitioned like the topic, so that a task rewrites only its own files."""
    return parse_partitioning((PARTITION,) if spec.upserts else spec.partition_by)


def table_schema(spec: TableSpec, values: Sequence[pa.Field]) -> pa.Schema:
    partition_fields = partition_fields_of(spec)
    schema = pa.schema([*record_fields(spec), *values, *computed_fields(partition_fields)])
    if len(set(schema.names)) != len(schema.names):
        raise BadTableOption(f"duplicate column names: {', '.join(schema.names)}")
    check_partition_fields(partition_fields, schema)
    return schema


def values_of_schema(spec: TableSpec, schema: pa.Schema) -> list[pa.Field]:
    """The value columns of an existing table."""
    own = {field.name for field in (*_RECORD, *computed_fields(partition_fields_of(spec)))}
    return [field for field in schema if field.name not in own]


def dead_letter_schema() -> pa.Schema:
    return pa.schema([*_RECORD, pa.field(ERROR, pa.string())])


def can_be_column(name: str) -> bool:
    return bool(name) and name not in _TAKEN and not (_NOT_IN_NAMES & set(name))


_TAKEN = frozenset((*SOURCE_COLUMNS, ERROR))


def _avro_fields(schema: Any) -> list[pa.Field]:
    from penstock.spark.codec.avro_types import AvroUnsupported, avro_columns
    from penstock.spark.codec.ddl_columns import to_ddl

    try:
        return arrow_fields(to_ddl(avro_columns(schema)))
    except AvroUnsupported as error:
        raise BadTableOption(f"the Avro schema cannot be used: {error}") from None


def _checked(fields: list[pa.Field]) -> list[pa.Field]:
    for field in fields:
        if not can_be_column(field.name):
            raise BadTableOption(
                f"a value column cannot be named {field.name!r}: use letters, digits and _, and "
                f"none of {', '.join(sorted(_TAKEN))}"
            )
    return fields


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with all columns of the schema, in its order; missing columns are null."""
    return pa.Table.from_arrays(
        [_column(rows, field) for field in schema], schema=schema.remove_metadata()
    )


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    return column if column.type == field.type else _as_type(column, field.type)


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Casts the column; a struct gets its missing fields as nulls."""
    if not pa.types.is_struct(wanted):
        return column.cast(wanted)
    whole = column.combine_chunks()
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    inner = pa.Table.from_arrays(whole.flatten(), names=[field.name for field in whole.type])
    filled = conform(inner, pa.schema(list(wanted)))
    arrays = [_one_array(column) for column in filled.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=whole.is_null())


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined
