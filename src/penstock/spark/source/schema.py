"""The columns of the source, with their types in Spark, and which of them a query asks for."""

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
    """As DDL; every column may be null."""
    names = [name for name in COLUMN_TYPES if include_headers or name != HEADERS]
    return ", ".join(f"`{name}` {COLUMN_TYPES[name]}" for name in names)


def find_columns(schema: "StructType") -> tuple[str, ...]:
    """Those of `.schema(...)`, in its order: what is not asked for is not decoded."""
    for each in schema.fields:
        expected = COLUMN_TYPES.get(each.name)
        if expected is None:
            known = ", ".join(COLUMN_TYPES)
            raise SparkSourceError(
                f"there is no column {each.name!r} to read: choose from {known}; what is inside "
                "of a value is for functions such as from_json"
            )
        if each.dataType.simpleString() != expected:
            raise SparkSourceError(
                f"column {each.name!r} is {expected}, not {each.dataType.simpleString()}: read it "
                "as that and cast it afterwards"
            )
    names = tuple(each.name for each in schema.fields)
    if len(set(names)) != len(names):
        raise SparkSourceError(f"a column is asked for twice: {', '.join(names)}")
    return names
