"""The columns of a table: where a record lies, what it carried, and what its value holds.

Pure. Names of the first kinds begin with `_`; a field of a value that has such a name is no column.
Invariant: a table's schema is a function of its specification and of the columns of its values.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.spark.codec.row_columns import COLUMN_TYPES
from penstock.spark.tables.arrow_types import arrow_fields
from penstock.spark.tables.errors import BadTableOption
from penstock.spark.tables.partitioning import (
    Division,
    check_divisions,
    computed_fields,
    parse_partitioning,
)
from penstock.spark.tables.spec import TableSpec, ValueKind

PARTITION, OFFSET, TIMESTAMP = "_partition", "_offset", "_timestamp"
KEY, VALUE, ERROR = "_key", "_value", "_error"
# A table's name of each column of the source; the topic is the table's own.
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
_TEXT = "value"  # the one column of a text
# What Delta, Parquet's readers or Spark cannot have in a name.
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=.`")


def record_fields(spec: TableSpec) -> list[pa.Field]:
    return [each for each in _RECORD if spec.keeps_value or each.name != VALUE]


def value_fields(spec: TableSpec) -> list[pa.Field]:
    """As far as the specification says them; inferred ones come later."""
    match spec.value:
        case ValueKind.TEXT:
            return [pa.field(_TEXT, pa.string())]
        case ValueKind.AVRO:
            return _checked(_avro_fields(spec.avro))
        case ValueKind.JSON if spec.columns is not None:
            return _checked(arrow_fields(spec.columns))
        case _:
            return []


def divisions_of(spec: TableSpec) -> tuple[Division, ...]:
    """Latest rows lie by the topic's partition, so that a task rewrites its own files alone."""
    return parse_partitioning((PARTITION,) if spec.upserts else spec.partition_by)


def table_schema(spec: TableSpec, values: Sequence[pa.Field]) -> pa.Schema:
    divisions = divisions_of(spec)
    schema = pa.schema([*record_fields(spec), *values, *computed_fields(divisions)])
    if len(set(schema.names)) != len(schema.names):
        raise BadTableOption(f"a column would be there twice: {', '.join(schema.names)}")
    check_divisions(divisions, schema)
    return schema


def values_of_schema(spec: TableSpec, schema: pa.Schema) -> list[pa.Field]:
    """The columns of values in a table as it is."""
    own = {each.name for each in (*_RECORD, *computed_fields(divisions_of(spec)))}
    return [each for each in schema if each.name not in own]


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
    for each in fields:
        if not can_be_column(each.name):
            raise BadTableOption(
                f"a table cannot have a column {each.name!r} of values: choose a name that is not "
                f"one of {', '.join(sorted(_TAKEN))}, of letters, digits and _"
            )
    return fields


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """With all columns of the schema, in its order; null where rows have none."""
    return pa.Table.from_arrays(
        [_column(rows, each) for each in schema], schema=schema.remove_metadata()
    )


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    found = rows.column(field.name)
    return found if found.type == field.type else _as_type(found, field.type)


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Also a struct with fewer fields than are wanted."""
    if not pa.types.is_struct(wanted):
        return column.cast(wanted)
    whole = column.combine_chunks()
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    inner = pa.Table.from_arrays(whole.flatten(), names=[each.name for each in whole.type])
    filled = conform(inner, pa.schema(list(wanted)))
    arrays = [_one_array(each) for each in filled.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=whole.is_null())


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined
