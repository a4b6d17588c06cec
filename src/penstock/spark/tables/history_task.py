"""The task that reads old records from a table's files and returns them as the source does.

Runs on executors, which need only pyarrow. Invariant: rows are ordered by offset and have the types
of `arrow_schema`, so that they cannot be told from records of the topic.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.codec.row_columns import MAX_ROWS, arrow_schema
from penstock.spark.source.plan import OffsetRange
from penstock.spark.source.read_task import ReadRange, ReadSettings
from penstock.spark.tables.errors import TableError
from penstock.spark.tables.history_plan import HistoryWindow, windows
from penstock.spark.tables.part_reader import LocatedPart, read_columns
from penstock.spark.tables.table_schema import OFFSET, PARTITION, SOURCE_COLUMNS

_TABLE_NAMES = {source: name for name, source in SOURCE_COLUMNS.items()}
_TOPIC = "topic"


class HistoryFiles(NamedTuple):
    """Files of a table and of its dead letters that may have rows of the range."""

    files: tuple[LocatedPart, ...]
    schema: pa.Schema  # of the table


class ReadHistory(ReadRange):
    """The work of a task that reads a table instead of the topic."""

    def __init__(self, wanted: OffsetRange, past: HistoryFiles) -> None:
        super().__init__(wanted)
        self.past = past

    def read(self, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
        return read_history(self.wanted, self.past, settings.columns)


def read_history(
    wanted: OffsetRange, past: HistoryFiles, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    parts = [located.part for located in past.files]
    for window in windows(parts, wanted):
        rows = _read_window(window, wanted, past, columns)
        shaped = _as_source(rows, wanted.tp.topic, columns)
        yield from shaped.to_batches(max_chunksize=MAX_ROWS)


def _read_window(
    window: HistoryWindow, wanted: OffsetRange, past: HistoryFiles, columns: Sequence[str]
) -> pa.Table:
    names = [_TABLE_NAMES[column] for column in columns if column != _TOPIC]
    needed = list(dict.fromkeys([*names, OFFSET]))
    tables = []
    for index in window.indexes:
        located = past.files[index]
        try:
            rows = read_columns(located, past.schema, needed, _keep(window, wanted, located))
        except FileNotFoundError:
            raise TableError(
                f"{located.path} is gone: the table was compacted or cleaned since this query was "
                "planned; run it again"
            ) from None
        tables.append(rows.select(needed))
    whole = pa.concat_tables(tables)
    return whole if _is_sorted(whole.column(OFFSET)) else whole.sort_by(OFFSET)


def _keep(window: HistoryWindow, wanted: OffsetRange, located: LocatedPart) -> pc.Expression:
    offset = pc.field(OFFSET)
    keep = (offset >= window.start) & (offset < window.end)
    if located.part.topic_partition is None:
        keep &= pc.field(PARTITION) == wanted.tp.partition
    return keep


def _is_sorted(offsets: pa.ChunkedArray) -> bool:
    whole = offsets.combine_chunks()
    if len(whole) < 2:
        return True
    return bool(pc.all(pc.less(whole[:-1], whole[1:])).as_py())


def _as_source(rows: pa.Table, topic: str, columns: Sequence[str]) -> pa.Table:
    schema = arrow_schema(columns)
    made = [
        pa.repeat(pa.scalar(topic, field.type), rows.num_rows)
        if field.name == _TOPIC
        else rows.column(_TABLE_NAMES[field.name]).cast(field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(made, schema=schema)
