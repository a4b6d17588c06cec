"""Writes rows to Parquet files, with one open file per combination of partition values.

Runs in tasks. File names are unique, so that retried or duplicated tasks do no harm: only files
named by a commit are in the table. A file is fsynced before it is returned.
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
    PartitionField,
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
_MOST_OPEN = 64  # files; with more partition values, files get more and smaller


class Layout(NamedTuple):
    """How a format lays out its files."""

    folder: str  # within the table's folder, for new files; ends with /
    stores_partition_columns: bool  # in the files
    names_folders: bool  # after partition values, as plain folders need it

    def stores(self, column: str) -> bool:
        return self.stores_partition_columns or (self.names_folders and not can_name_folder(column))


class WriteRules(NamedTuple):
    """How a table's files are written; sent to every task."""

    table: str  # the table's folder
    layout: Layout
    schema: pa.Schema  # of the table
    partition_fields: tuple[PartitionField, ...]
    target_bytes: int


class PartWriter:
    """Writes the files of one task for one topic partition."""

    def __init__(self, rules: WriteRules, topic_partition: int | None) -> None:
        self._rules = rules
        self._topic_partition = topic_partition
        self._open: dict[PartitionValues, _OpenPart] = {}
        self._done: list[Part] = []

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        whole = conform(with_computed(rows, self._rules.partition_fields), self._rules.schema)
        for values, share in split_rows(whole, self._rules.partition_fields):
            part = self._get(values)
            part.add(share)
            if part.size_bytes >= self._rules.target_bytes:
                self._close(values)

    def close(self) -> list[Part]:
        for values in list(self._open):
            self._close(values)
        return self._done

    def abort(self) -> None:
        """Deletes everything written so far."""
        for part in self._open.values():
            part.discard()
        remove_parts(self._rules.table, self._done)

    def _get(self, values: PartitionValues) -> "_OpenPart":
        part = self._open.pop(values, None)
        if part is None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))  # the least recently used
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
        partition_columns = [partition_field.column for partition_field in rules.partition_fields]
        omitted = [name for name in partition_columns if not rules.layout.stores(name)]
        self._names = [name for name in rules.schema.names if name not in omitted]
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
        waiting_rows = sum(rows.num_rows for rows in self._waiting)
        waiting_bytes = sum(rows.nbytes for rows in self._waiting)
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
    return min((bound for bound in (one, other) if bound is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((bound for bound in (one, other) if bound is not None), default=None)


def remove_parts(table: str, parts: Sequence[Part]) -> None:
    """Deletes files that no commit refers to."""
    for part in parts:
        (Path(table) / part.path).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
