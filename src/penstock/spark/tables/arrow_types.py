"""Parses Spark SQL column types (`STRING`, `DECIMAL(10, 2)`, `ARRAY<STRUCT<a: INT>>`) into Arrow
types. Pure, and needs no Java.

Invariant: Delta, Iceberg and Parquet can all store every resulting type.
"""

import re

import pyarrow as pa

from penstock.spark.codec.ddl_columns import NotColumns, column_names, split_columns
from penstock.spark.tables.errors import BadTableOption

TIMESTAMP = pa.timestamp("us", tz="UTC")
_SIMPLE = {
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "SMALLINT": pa.int32(),  # Iceberg has no smaller integer
    "TINYINT": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_NESTED = re.compile(r"(ARRAY|MAP|STRUCT)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_COLUMN = re.compile(r"\s*(?:`(?:[^`]|``)+`|[A-Za-z_]\w*)\s*:?\s*(.+?)\s*", re.DOTALL)


def arrow_fields(ddl: str) -> list[pa.Field]:
    """The nullable fields of a schema such as `user STRING, at TIMESTAMP`."""
    try:
        names, columns = column_names(_spaced(ddl)), split_columns(ddl)
    except NotColumns as error:
        raise BadTableOption(f"the schema cannot be read: {error}") from None
    return [
        pa.field(name, arrow_type(_type_text(column), where=name))
        for name, column in zip(names, columns, strict=True)
    ]


def arrow_type(text: str, *, where: str) -> pa.DataType:
    written = text.strip()
    simple = _SIMPLE.get(written.upper())
    if simple is not None:
        return simple
    if (decimal := _DECIMAL.fullmatch(written)) is not None:
        return _decimal(int(decimal[1]), int(decimal[2] or 0), where)
    if (nested := _NESTED.fullmatch(written)) is not None:
        return _nested(nested[1].upper(), nested[2], where)
    raise BadTableOption(
        f"column {where}: {written!r} is not a supported type: write one of "
        f"{', '.join(_SIMPLE)}, DECIMAL(10, 2), ARRAY<...>, MAP<STRING, ...>, STRUCT<name: ...>"
    )


def _nested(kind: str, inside: str, where: str) -> pa.DataType:
    if kind == "STRUCT":
        return pa.struct(arrow_fields(inside))
    if kind == "ARRAY":
        return list_of(arrow_type(inside, where=f"{where}[]"))
    key, *rest = split_columns(inside)
    if len(rest) != 1 or key.strip().upper() != "STRING":
        raise BadTableOption(f"column {where}: write MAP<STRING, type>, not MAP<{inside}>")
    return pa.map_(pa.string(), arrow_type(rest[0], where=f"{where}{{}}"))


def list_of(element: pa.DataType) -> pa.DataType:
    """A list type whose element has the name that Delta and Iceberg use."""
    return pa.list_(pa.field("element", element))


def _decimal(precision: int, scale: int, where: str) -> pa.DataType:
    if not 0 < precision <= 38 or scale > precision:
        raise BadTableOption(
            f"column {where}: a DECIMAL has 1 to 38 digits, and its scale is not larger than that: "
            f"not DECIMAL({precision}, {scale})"
        )
    return pa.decimal128(precision, scale)


def _type_text(column: str) -> str:
    match = _COLUMN.fullmatch(column)
    assert match is not None, "column_names has parsed it"
    return match[1]


def _spaced(ddl: str) -> str:
    """Inserts a space into `a:INT` inside a struct, as `column_names` expects."""
    return re.sub(r":(?=\S)", ": ", ddl)
