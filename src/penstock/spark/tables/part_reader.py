"""Reads files of a table, in batches of rows. Runs in tasks."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.tables.parts import Part

_BATCH_ROWS = 64 * 1024


class LocatedPart(NamedTuple):
    part: Part
    path: str  # absolute


def read_part(located: LocatedPart, schema: pa.Schema) -> Iterator[pa.Table]:
    """All rows, including the partition columns."""
    with pq.ParquetFile(located.path) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            yield _with_partition_columns(pa.Table.from_batches([batch]), located.part, schema)


def has_any(located: LocatedPart, column: str, values: pa.Array) -> bool:
    """Whether a row of the file has one of these values in the column."""
    with pq.ParquetFile(located.path) as file:
        held = file.read(columns=[column]).column(column)
    return bool(pc.any(pc.is_in(held, value_set=values)).as_py())


def read_columns(
    located: LocatedPart, schema: pa.Schema, columns: Sequence[str], keep: pc.Expression
) -> pa.Table:
    """Rows that match `keep`; row groups whose bounds exclude a match are not read."""
    with pq.ParquetFile(located.path) as file:
        stored = [name for name in columns if name in file.schema_arrow.names]
    rows = pq.read_table(located.path, columns=stored, filters=keep, partitioning=None)
    return _with_partition_columns(rows, located.part, schema)


def _with_partition_columns(rows: pa.Table, part: Part, schema: pa.Schema) -> pa.Table:
    """Adds partition columns that the file does not store: they are constant within a file."""
    for name, text in part.values:
        if name not in rows.column_names:
            value = pa.scalar(text, pa.string()).cast(schema.field(name).type)
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows
