"""Tables for tests: synced from a topic with tasks in this process or on Spark, and their content.

Content is read with the format's own package, as any other reader does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from penstock.spark.connect.connections import BlockingClient, ClientSettings, shared_client
from penstock.spark.tables.follow import make_sync
from penstock.spark.tables.opening import TableFolder, TopicTables, open_tables
from penstock.spark.tables.rules import RunTasks, SyncRules
from penstock.spark.tables.spec import TableFormat, parse_spec
from penstock.spark.tables.store import DEAD_LETTERS
from penstock.spark.tables.sync import SyncProgress, TableSync

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class SyncedTable(NamedTuple):
    """A topic's tables, their sync and its notes."""

    tables: TopicTables
    sync: TableSync
    notes: list[str]

    def drain(self) -> list[SyncProgress]:
        done = []
        while (progress := self.sync.run_batch()) is not None:
            done.append(progress)
        return done


def run_here(work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> list[_Result]:
    """Runs tasks in this process instead of on Spark."""
    return [work(task) for task in tasks]


class Served(Protocol):
    """A broker or a cluster."""

    @property
    def bootstrap_servers(self) -> str: ...


def open_synced(
    broker: Served,
    folder: Path,
    topic: str,
    *,
    run_tasks: RunTasks = run_here,
    most_records: int = 1_000_000,
    task_records: int = 100,
    allows_loss: bool = False,
    options: Mapping[str, object] | None = None,
) -> SyncedTable:
    """Opens the table; without options it must exist. Tasks are small, so that there are
    several."""
    spec = parse_spec({"topic": topic, **options}) if options else None
    tables = open_tables(TableFolder(folder=folder), spec, topic, client_of(broker))
    notes: list[str] = []
    rules = SyncRules(most_records=most_records, task_records=task_records, allows_loss=allows_loss)
    sync = make_sync(tables, client_of(broker), run_tasks, rules, notes.append)
    return SyncedTable(tables, sync, notes)


def client_of(broker: Served) -> BlockingClient:
    return shared_client(ClientSettings(broker.bootstrap_servers))


def read_table(folder: Path, name: str, kind: TableFormat) -> pa.Table:
    """Reads the table without Penstock's code."""
    if kind is TableFormat.DELTA:
        from deltalake import DeltaTable

        return DeltaTable(folder / name).to_pyarrow_table()
    if kind is TableFormat.ICEBERG:
        return _read_iceberg(folder, name)
    return _read_folder(folder / name)


def _read_folder(folder: Path) -> pa.Table:
    """Merges the schemas: files of a plain folder may have different columns."""
    files = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").files
    tables = [pyarrow.parquet.read_table(file, partitioning="hive") for file in files]
    return pa.concat_tables(tables, promote_options="permissive")


def _read_iceberg(folder: Path, name: str) -> pa.Table:
    from pyiceberg.catalog.sql import SqlCatalog

    with SqlCatalog("penstock", uri=f"sqlite:///{folder}/catalog.db") as catalog:
        return catalog.load_table(("penstock", name)).scan().to_arrow()


def files_of(folder: Path, name: str, kind: TableFormat) -> list[str]:
    """The files that the table refers to."""
    if kind is TableFormat.DELTA:
        from deltalake import DeltaTable

        return DeltaTable(folder / name).file_uris()
    if kind is TableFormat.ICEBERG:
        from pyiceberg.catalog.sql import SqlCatalog

        with SqlCatalog("penstock", uri=f"sqlite:///{folder}/catalog.db") as catalog:
            files = catalog.load_table(("penstock", name)).scan().plan_files()
            return [file.file.file_path for file in files]
    return list(pyarrow.dataset.dataset(folder / name, format="parquet").files)


def positions_of(rows: pa.Table) -> list[tuple[int, int]]:
    """Partition and offset of every row, sorted."""
    numbers, offsets = rows.column("_partition").to_pylist(), rows.column("_offset").to_pylist()
    return sorted(zip(map(int, numbers), offsets, strict=True))


def dead_letters(folder: Path, topic: str, kind: TableFormat) -> list[dict[str, Any]]:
    rows = read_table(folder, topic + DEAD_LETTERS, kind)
    return sorted(rows.to_pylist(), key=lambda row: (row["_partition"], row["_offset"]))
