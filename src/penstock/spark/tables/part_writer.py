"""Rows into Parquet files: one open file for each value that the table is divided by.

Runs in tasks. Files have names that nobody else has, so that a task that is tried again, or twice
at once, harms nothing: only what a commit names is in the table. A file is on the disk before it is
told.
"""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.tables.partitioning import (
    Division,
    PartitionValues,
    can_name_folder,
    folder_of,
    split_rows,
    with_computed,
)
from penstock.spark.tables.parts import Part
from penstock.spark.tables.table_schema import OFFSET, TIMESTAMP, conform

COMPRESSION = "zstd"
_GROUP_ROWS = 128 * 1024
_GROUP_BYTES = 32 * 1024 * 1024
_MOST_OPEN = 64  # files; a table divided more finely gets more and smaller ones


class Layout(NamedTuple):
    """What formats want of files."""

    folder: str  # inside of the table's: where files are written, with a / at the end
    stores_divisions: bool  # files hold the columns that the table is divided by
    names_folders: bool  # by the values of a division: all that plain folders have

    def stores(self, column: str) -> bool:
        return self.stores_divisions or (self.names_folders and not can_name_folder(column))


class WriteRules(NamedTuple):
    """How files of a table are written; sent to every task."""

    table: str  # its folder
    layout: Layout
    schema: pa.Schema  # of the table
    divisions: tuple[Division, ...]
    target_bytes: int


class PartWriter:
    """The files of one task for one partition of the topic."""

    def __init__(self, rules: WriteRules, topic_partition: int | None) -> None:
        self._rules = rules
        self._topic_partition = topic_partition
        self._open: dict[PartitionValues, _OpenPart] = {}
        self._done: list[Part] = []

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        whole = conform(with_computed(rows, self._rules.divisions), self._rules.schema)
        for values, share in split_rows(whole, self._rules.divisions):
            part = self._get(values)
            part.add(share)
            if part.size_bytes >= self._rules.target_bytes:
                self._close(values)

    def close(self) -> list[Part]:
        for values in list(self._open):
            self._close(values)
        return self._done

    def give_up(self) -> None:
        """What was written is of no use."""
        for part in self._open.values():
            part.discard()
        remove_parts(self._rules.table, self._done)

    def _get(self, values: PartitionValues) -> "_OpenPart":
        part = self._open.pop(values, None)
        if part is None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))  # the one that was longest without rows
            part = _OpenPart(self._rules, values, self._topic_partition)
        self._open[values] = part
        return part

    def _close(self, values: PartitionValues) -> None:
        self._done.append(self._open.pop(values).close())


class _OpenPart:
    def __init__(
        self, rules: WriteRules, values: PartitionValues, topic_partition: int | None
    ) -> None:
        folder = rules.layout.folder + (folder_of(values) if rules.layout.names_folders else "")
        self._path = f"{folder}part-{uuid.uuid4().hex}.parquet"
        self._whole_path = Path(rules.table) / self._path
        self._whole_path.parent.mkdir(parents=True, exist_ok=True)
        divided_by = [each.column for each in rules.divisions]
        left_out = [name for name in divided_by if not rules.layout.stores(name)]
        self._names = [name for name in rules.schema.names if name not in left_out]
        schema = pa.schema([rules.schema.field(name) for name in self._names])
        self._file = self._whole_path.open("wb")
        self._writer = pq.ParquetWriter(self._file, schema, compression=COMPRESSION)
        self._waiting: list[pa.Table] = []
        self._part = Part("", 0, 0, values, topic_partition, 2**63, -1, None, None)

    @property
    def size_bytes(self) -> int:
        return self._file.tell()

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._part = _with_rows(self._part, rows)
        waiting_rows = sum(each.num_rows for each in self._waiting)
        waiting_bytes = sum(each.nbytes for each in self._waiting)
        if waiting_rows >= _GROUP_ROWS or waiting_bytes >= _GROUP_BYTES:
            self._write()

    def close(self) -> Part:
        self._write()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        sync_folder(self._whole_path.parent)
        return self._part._replace(path=self._path, size_bytes=size)

    def discard(self) -> None:
        self._writer.close()
        self._file.close()
        self._whole_path.unlink(missing_ok=True)

    def _write(self) -> None:
        if self._waiting:
            rows = pa.concat_tables(self._waiting).select(self._names)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._waiting = []


def _with_rows(part: Part, rows: pa.Table) -> Part:
    offsets = pc.min_max(rows.column(OFFSET)).as_py()
    times = pc.min_max(rows.column(TIMESTAMP).cast(pa.int64())).as_py()
    return part._replace(
        rows=part.rows + rows.num_rows,
        first_offset=min(part.first_offset, offsets["min"]),
        last_offset=max(part.last_offset, offsets["max"]),
        first_time_us=_least(part.first_time_us, times["min"]),
        last_time_us=_most(part.last_time_us, times["max"]),
    )


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def remove_parts(table: str, parts: Sequence[Part]) -> None:
    """Files that no commit has named, or names any more."""
    for part in parts:
        (Path(table) / part.path).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
