"""The source's columns with their Spark types, and the selection of a query."""

from typing import TYPE_CHECKING

from penstock.spark.errors import SparkSourceError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADERS = "headers"
COLUMN_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}


def full_schema(*, include_headers: bool) -> str:
    """The schema as DDL; every column is nullable."""
    names = [name for name in COLUMN_TYPES if include_headers or name != HEADERS]
    return ", ".join(f"`{name}` {COLUMN_TYPES[name]}" for name in names)


def find_columns(schema: "StructType") -> tuple[str, ...]:
    """The columns of `.schema(...)`, in its order; others are not decoded."""
    for field in schema.fields:
        expected = COLUMN_TYPES.get(field.name)
        if expected is None:
            columns = ", ".join(COLUMN_TYPES)
            raise SparkSourceError(
                f"there is no column {field.name!r} to read: choose from {columns}; to read fields "
                "inside a value, use functions such as from_json"
            )
        if field.dataType.simpleString() != expected:
            raise SparkSourceError(
                f"column {field.name!r} is {expected}, not {field.dataType.simpleString()}: read "
                "it as that and cast it afterwards"
            )
    names = tuple(field.name for field in schema.fields)
    if len(set(names)) != len(names):
        raise SparkSourceError(f"a column occurs twice: {', '.join(names)}")
    return names
