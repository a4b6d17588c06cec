"""How a table's files are divided: by columns as they are, or by the year, month, day or hour of
one.

Pure. What is computed becomes a column of its own (`day(_at)` is `at_day`), since Delta and plain
folders know no other way. Invariant: a file's rows have one value of each.
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


class Division(NamedTuple):
    column: str  # of the table
    source: str  # what it is computed from; itself, where it is a column as it is
    span: str | None  # year, month, day or hour


def parse_partitioning(written: Sequence[str]) -> tuple[Division, ...]:
    divisions = tuple(_parse(each) for each in written)
    names = [each.column for each in divisions]
    if len(set(names)) != len(names):
        raise BadTableOption(f"a table cannot be divided twice by the same: {', '.join(written)}")
    return divisions


def _parse(written: str) -> Division:
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise BadTableOption(
            f"a table cannot be divided by {written!r}: write a column, or one of year, month, day "
            "and hour of a column, as in day(_timestamp)"
        )
    if match[1] is None:
        return Division(match[3], match[3], None)
    span = match[1].lower()
    return Division(f"{match[2].lstrip('_')}_{span}", match[2], span)


def computed_fields(divisions: Sequence[Division]) -> list[pa.Field]:
    """Columns that the table has beside those of records."""
    return [pa.field(each.column, _RESULTS[each.span]) for each in divisions if each.span]


def check_divisions(divisions: Sequence[Division], schema: pa.Schema) -> None:
    for each in divisions:
        if each.source not in schema.names:
            raise BadTableOption(
                f"a table cannot be divided by {each.source!r}, which it has not: say its type in "
                f"the schema, or choose from {', '.join(schema.names)}"
            )
        kind = schema.field(each.source).type
        if each.span and not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise BadTableOption(f"{each.span}({each.source}) needs a time, and it is {kind}")
        if not each.span and not _can_divide(kind):
            raise BadTableOption(f"a table cannot be divided by {each.source}, which is {kind}")


def _can_divide(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
    )


def with_computed(rows: pa.Table, divisions: Sequence[Division]) -> pa.Table:
    for each in divisions:
        if each.span and each.column not in rows.column_names:
            rows = rows.append_column(each.column, _compute(rows.column(each.source), each.span))
    return rows


def _compute(times: pa.ChunkedArray, span: str) -> pa.ChunkedArray:
    if span == "day":
        return times.cast(pa.timestamp("us")).cast(pa.timestamp("s"), safe=False).cast(pa.date32())
    if span == "year":
        return pc.year(times).cast(pa.int32())
    return pc.strftime(times.cast(pa.timestamp("us")), _STAMPS[span])


def split_rows(
    rows: pa.Table, divisions: Sequence[Division]
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Rows that belong into one file, in their order."""
    if not divisions:
        yield (), rows
        return
    names = [each.column for each in divisions]
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
    """As Delta and Hive write values of partitions."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def folder_of(values: PartitionValues) -> str:
    """`country=AT/at_day=2026-01-31/`, in any characters that a value may have."""
    return "".join(
        f"{name}={quote(value, safe='') if value is not None else _NULL}/"
        for name, value in values
        if can_name_folder(name)
    )


def can_name_folder(column: str) -> bool:
    """Many readers pass over folders whose names begin like that."""
    return not column.startswith(("_", "."))
