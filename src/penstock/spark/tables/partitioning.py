"""How a table is partitioned: by columns, or by the year, month, day or hour of a column.

Pure. A computed value becomes a column (`day(_at)` is `at_day`), because Delta and plain folders
offer no other way. Invariant: all rows of a file have the same partition values.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.errors import BadTableOption

_WRITTEN = re.compile(r"\s*(?:(year|month|day|hour)\s*\(\s*(\w+)\s*\)|(\w+))\s*", re.IGNORECASE)
_STAMPS = {"month": "%Y-%m", "hour": "%Y-%m-%d-%H"}
_RESULTS = {"year": pa.int32(), "month": pa.string(), "day": pa.date32(), "hour": pa.string()}
_NULL = "__HIVE_DEFAULT_PARTITION__"

# A column's name and its value as text; None: null.
PartitionValues = tuple[tuple[str, str | None], ...]


class PartitionField(NamedTuple):
    column: str  # of the table
    source: str  # the column it is computed from, or the column itself
    span: str | None  # year, month, day or hour


def parse_partitioning(written: Sequence[str]) -> tuple[PartitionField, ...]:
    partition_fields = tuple(_parse(text) for text in written)
    names = [partition_field.column for partition_field in partition_fields]
    if len(set(names)) != len(names):
        raise BadTableOption(
            f"a table cannot be partitioned twice by the same column: {', '.join(written)}"
        )
    return partition_fields


def _parse(written: str) -> PartitionField:
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise BadTableOption(
            f"a table cannot be partitioned by {written!r}: write a column, or one of year, month, "
            "day and hour of a column, as in day(_timestamp)"
        )
    if match[1] is None:
        return PartitionField(match[3], match[3], None)
    span = match[1].lower()
    return PartitionField(f"{match[2].lstrip('_')}_{span}", match[2], span)


def computed_fields(partition_fields: Sequence[PartitionField]) -> list[pa.Field]:
    """The table's computed partition columns."""
    return [
        pa.field(partition_field.column, _RESULTS[partition_field.span])
        for partition_field in partition_fields
        if partition_field.span
    ]


def check_partition_fields(partition_fields: Sequence[PartitionField], schema: pa.Schema) -> None:
    for partition_field in partition_fields:
        if partition_field.source not in schema.names:
            raise BadTableOption(
                f"a table cannot be partitioned by {partition_field.source!r}, which is not a "
                f"column: add it to the schema, or choose from {', '.join(schema.names)}"
            )
        kind = schema.field(partition_field.source).type
        if partition_field.span and not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise BadTableOption(
                f"{partition_field.span}({partition_field.source}) needs a time, and it is {kind}"
            )
        if not partition_field.span and not _can_partition(kind):
            raise BadTableOption(
                f"a table cannot be divided by {partition_field.source}, which is {kind}"
            )


def _can_partition(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
    )


def with_computed(rows: pa.Table, partition_fields: Sequence[PartitionField]) -> pa.Table:
    for partition_field in partition_fields:
        if partition_field.span and partition_field.column not in rows.column_names:
            rows = rows.append_column(
                partition_field.column,
                _compute(rows.column(partition_field.source), partition_field.span),
            )
    return rows


def _compute(times: pa.ChunkedArray, span: str) -> pa.ChunkedArray:
    if span == "day":
        return times.cast(pa.timestamp("us")).cast(pa.timestamp("s"), safe=False).cast(pa.date32())
    if span == "year":
        return pc.year(times).cast(pa.int32())
    return pc.strftime(times.cast(pa.timestamp("us")), _STAMPS[span])


def split_rows(
    rows: pa.Table, partition_fields: Sequence[PartitionField]
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Splits rows by partition values; each share keeps its order."""
    if not partition_fields:
        yield (), rows
        return
    names = [partition_field.column for partition_field in partition_fields]
    for value in rows.select(names).group_by(names).aggregate([]).to_pylist():
        mask = None
        for name in names:
            matches = _equals(rows.column(name), value[name])
            mask = matches if mask is None else pc.and_(mask, matches)
        yield tuple((name, as_text(value[name])) for name in names), rows.filter(mask)


def _equals(column: pa.ChunkedArray, value: object) -> pa.ChunkedArray:
    if value is None:
        return column.is_null()
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)


def as_text(value: object) -> str | None:
    """The value as Delta and Hive write partition values."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def folder_of(values: PartitionValues) -> str:
    """The Hive-style folder, `country=AT/at_day=2026-01-31/`, with escaped values."""
    return "".join(
        f"{name}={quote(value, safe='') if value is not None else _NULL}/"
        for name, value in values
        if can_name_folder(name)
    )


def can_name_folder(column: str) -> bool:
    """False for names that start with `_` or `.`: many readers skip such folders."""
    return not column.startswith(("_", "."))
