"""What a task does that reads old records: rows of a table's files, as the source gives records.

Runs on executors, which need pyarrow alone. Invariant: rows come in the order of their offsets,
with the types that `arrow_schema` has, so that nobody can tell them from records of the topic.
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


class PastFiles(NamedTuple):
    """Files of a table and of its dead letters that may have rows of a range."""

    files: tuple[LocatedPart, ...]
    schema: pa.Schema  # of the table


class ReadPast(ReadRange):
    """The work of one task that reads a table instead of the topic."""

    def __init__(self, wanted: OffsetRange, past: PastFiles) -> None:
        super().__init__(wanted)
        self.past = past

    def read(self, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
        return read_past(self.wanted, self.past, settings.columns)


def read_past(
    wanted: OffsetRange, past: PastFiles, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    parts = [each.part for each in past.files]
    for window in windows(parts, wanted):
        rows = _read_window(window, wanted, past, columns)
        shaped = _as_source(rows, wanted.tp.topic, columns)
        yield from shaped.to_batches(max_chunksize=MAX_ROWS)


def _read_window(
    window: HistoryWindow, wanted: OffsetRange, past: PastFiles, columns: Sequence[str]
) -> pa.Table:
    names = [_TABLE_NAMES[each] for each in columns if each != _TOPIC]
    needed = list(dict.fromkeys([*names, OFFSET]))
    found = []
    for place in window.places:
        located = past.files[place]
        try:
            rows = read_columns(located, past.schema, needed, _keep(window, wanted, located))
        except FileNotFoundError:
            raise TableError(
                f"{located.path} is gone: the table was compacted or cleaned since this query was "
                "planned; run it again"
            ) from None
        found.append(rows.select(needed))
    whole = pa.concat_tables(found)
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
