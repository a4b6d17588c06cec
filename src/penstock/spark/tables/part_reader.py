"""Files of a table as they were written, some rows at a time. Runs in tasks."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.tables.parts import Part

_BATCH_ROWS = 64 * 1024


class LocatedPart(NamedTuple):
    part: Part
    path: str  # where it is


def read_part(located: LocatedPart, schema: pa.Schema) -> Iterator[pa.Table]:
    """Every row, with the columns by which the table is divided."""
    with pq.ParquetFile(located.path) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            yield _with_divisions(pa.Table.from_batches([batch]), located.part, schema)


def has_any(located: LocatedPart, column: str, values: pa.Array) -> bool:
    """Whether a row of the file has one of these in the column."""
    with pq.ParquetFile(located.path) as file:
        held = file.read(columns=[column]).column(column)
    return bool(pc.any(pc.is_in(held, value_set=values)).as_py())


def read_columns(
    located: LocatedPart, schema: pa.Schema, columns: Sequence[str], keep: pc.Expression
) -> pa.Table:
    """Rows that pass; groups of rows whose bounds say that none can are not read."""
    with pq.ParquetFile(located.path) as file:
        stored = [name for name in columns if name in file.schema_arrow.names]
    rows = pq.read_table(located.path, columns=stored, filters=keep, partitioning=None)
    return _with_divisions(rows, located.part, schema)


def _with_divisions(rows: pa.Table, part: Part, schema: pa.Schema) -> pa.Table:
    """All rows of a file have the same there, so that a file need not hold them."""
    for name, text in part.values:
        if name not in rows.column_names:
            value = pa.scalar(text, pa.string()).cast(schema.field(name).type)
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows
