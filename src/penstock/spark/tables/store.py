"""What Delta, Iceberg and plain Parquet have in common: a table in a folder, changed by commits.

Invariant of every store: files and what the table holds enter it in one commit, or neither does; a
commit on a table that somebody else has changed since `load` is a CommitConflict and changes
nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.spark.tables.errors import TableError, TableMissing
from penstock.spark.tables.part_writer import Layout
from penstock.spark.tables.parts import Part, TableChange, TableState
from penstock.spark.tables.spec import TableFormat, TableSpec

DEAD_LETTERS = "@dead"  # behind a table's name; no topic's name has this letter


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
        """See what others have committed."""
        ...

    def parts(self) -> list[Part]:
        """All files of the table."""
        ...

    def path_of(self, part: Part) -> str:
        """Where a file of the table is."""
        ...

    def commit(self, change: TableChange) -> None:
        """Returns with the table loaded as it is then."""
        ...

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """A commit of its own. A column that is there with fewer fields inside gets the others."""
        ...

    def forget_older_than(self, age_ms: int, now_ms: int) -> int:
        """Delete files that no reader of the last `age_ms` can need; says how many."""
        ...

    def close(self) -> None: ...


def find_format(location: Path) -> TableFormat | None:
    """Of the table in this folder; None: there is none."""
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
            f"there is no table in {location}: `penstock table sync` makes one of a topic"
        )
    return store


def get_tables(location: Path) -> list[TableStore]:
    """A table, and that of its dead letters if it has one."""
    beside = find_store(dead_letters_of(location))
    return [get_store(location), *([beside] if beside is not None else [])]


def create_store(location: Path, spec: TableSpec, schema: pa.Schema) -> TableStore:
    """Two who make it at once: one of them is told that it is there."""
    if location.is_dir() and any(location.iterdir()):
        raise TableError(f"{location} has something in it that is no table of Penstock's")
    location.parent.mkdir(parents=True, exist_ok=True)
    return _store_class(spec.format).create(location, spec, schema)


def dead_letters_of(location: Path) -> Path:
    return location.with_name(location.name + DEAD_LETTERS)


class StoreClass(Protocol):
    def open(self, location: Path) -> TableStore: ...

    def create(self, location: Path, spec: TableSpec, schema: pa.Schema) -> TableStore: ...


def _store_class(kind: TableFormat) -> StoreClass:
    """Imported when it is needed: the packages behind take a second."""
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
