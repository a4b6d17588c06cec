"""The interface of Delta, Iceberg and plain Parquet tables: a table in a folder, changed by
commits.

Invariant of every store: files and held offsets are committed together or not at all; a commit on a
table that was changed concurrently since `load` raises CommitConflict and changes nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.spark.tables.errors import TableError, TableMissing
from penstock.spark.tables.part_writer import Layout
from penstock.spark.tables.parts import Part, TableChange, TableState
from penstock.spark.tables.spec import TableFormat, TableSpec

DEAD_LETTERS = "@dead"  # suffix of a table's name; topic names cannot contain @


class TableStore(Protocol):
    """One table, as of the last `load`."""

    layout: Layout

    @property
    def location(self) -> Path: ...

    @property
    def spec(self) -> TableSpec: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def state(self) -> TableState: ...

    def load(self) -> None:
        """Loads the latest committed state."""
        ...

    def parts(self) -> list[Part]:
        """All files of the table."""
        ...

    def path_of(self, part: Part) -> str:
        """The absolute path of a file of the table."""
        ...

    def commit(self, change: TableChange) -> None:
        """Commits the change and loads the new state."""
        ...

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Adds columns in a separate commit. An existing struct column gains its missing fields."""
        ...

    def vacuum(self, age_ms: int, now_ms: int) -> int:
        """Deletes files that no reader of the last `age_ms` can need; returns how many."""
        ...

    def close(self) -> None: ...


def find_format(location: Path) -> TableFormat | None:
    """The format of the table in this folder; None if there is no table."""
    if (location / "_delta_log").is_dir():
        return TableFormat.DELTA
    if (location / "_penstock").is_dir():
        return TableFormat.PARQUET
    if (location / "metadata").is_dir() and (location.parent / "catalog.db").is_file():
        return TableFormat.ICEBERG
    return None


def find_store(location: Path) -> TableStore | None:
    kind = find_format(location)
    return None if kind is None else _store_class(kind).open(location)


def get_store(location: Path) -> TableStore:
    store = find_store(location)
    if store is None:
        raise TableMissing(
            f"there is no table in {location}: `penstock table sync TOPIC` creates one"
        )
    return store


def get_tables(location: Path) -> list[TableStore]:
    """The table and, if there is one, its dead-letter table."""
    dead_letters = find_store(dead_letters_of(location))
    return [get_store(location), *([dead_letters] if dead_letters is not None else [])]


def create_store(location: Path, spec: TableSpec, schema: pa.Schema) -> TableStore:
    """Creates the table; of two concurrent calls one fails because the table exists."""
    if location.is_dir() and any(location.iterdir()):
        raise TableError(f"{location} is not empty and not a Penstock table: use another folder")
    location.parent.mkdir(parents=True, exist_ok=True)
    return _store_class(spec.format).create(location, spec, schema)


def dead_letters_of(location: Path) -> Path:
    return location.with_name(location.name + DEAD_LETTERS)


class StoreClass(Protocol):
    def open(self, location: Path) -> TableStore: ...

    def create(self, location: Path, spec: TableSpec, schema: pa.Schema) -> TableStore: ...


def _store_class(kind: TableFormat) -> StoreClass:
    """Imports the store lazily: the format's package takes a second."""
    try:
        match kind:
            case TableFormat.DELTA:
                from penstock.spark.tables.delta_store import DeltaStore

                return DeltaStore
            case TableFormat.ICEBERG:
                from penstock.spark.tables.iceberg_store import IcebergStore

                return IcebergStore
            case TableFormat.PARQUET:
                from penstock.spark.tables.parquet_store import ParquetStore

                return ParquetStore
    except ImportError as error:
        raise TableError(
            f"{kind} tables need {error.name}, which comes with: pip install 'penstock[tables]'"
        ) from None
