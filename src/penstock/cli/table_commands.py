"""`penstock table`: topics as tables, synced by Spark to Delta, Iceberg or plain Parquet."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    command_group,
    fail,
    wants_json,
)
from penstock.cli.pipeline_progress import note
from penstock.cli.spark_work import MasterOption, exit_on_spark_errors, get_spark_bootstrap
from penstock.cli.stopping import stopped_by_signals
from penstock.cli.table_option_values import TableOptions, get_table_folder, read_avro
from penstock.cli.table_options import (
    DEFAULT_DIR,
    DEFAULT_FILE_BYTES,
    AllowLossOption,
    BadValuesOption,
    CompactOption,
    DirOption,
    DropValueOption,
    EveryOption,
    EvolveOption,
    FileBytesOption,
    FormatOption,
    KeepHoursOption,
    MaxRecordsOption,
    OnceOption,
    PartitionByOption,
    RegistryPrefixOption,
    SchemaFileOption,
    SchemaOption,
    TopicsArgument,
    UpsertOption,
    ValueOption,
)
from penstock.cli.table_output import Display, show_statuses, show_totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.connect.connections import BlockingClient
    from penstock.spark.tables.rules import RunTasks, SyncRules
    from penstock.spark.tables.store import TableStore

app = command_group("Sync topics to Delta, Iceberg or Parquet tables on Spark.")

_HOUR_MS = 3_600_000

_SYNC_HELP = """Sync tables with topics until Ctrl-C; with --once, until they are up to date.

Every record is in its table exactly once, whichever process is killed: offsets are committed with
the table's files, and the next run continues from there. A table's format and columns are set once,
when it is created. Without TOPIC, syncs all topics with the config penstock.table.format.

\b
Examples:
  penstock table sync orders --format delta --value json
  penstock table sync orders --once
  penstock table sync clicks --format iceberg --value json \\
      --schema "user STRING, at TIMESTAMP" --partition-by "day(at)"
  penstock table sync accounts --format delta --upsert
"""

_STATUS_HELP = """Show tables with their rows, files, dead letters and lag behind their topics.

\b
Examples:
  penstock table status
  penstock table status orders --json
"""

_COMPACT_HELP = """Merge small files of a table into larger ones, and delete unused files.

A running sync also merges files from time to time. Unused files are deleted once they are older
than --keep-hours, because a reader may still need them.

\b
Examples:
  penstock table compact orders
"""


@app.command(help=_SYNC_HELP)
def sync(
    ctx: typer.Context,
    topics: TopicsArgument = None,
    table_format: FormatOption = None,
    folder: DirOption = DEFAULT_DIR,
    value: ValueOption = None,
    schema: SchemaOption = None,
    schema_file: SchemaFileOption = None,
    registry_prefix: RegistryPrefixOption = False,
    evolve: EvolveOption = None,
    partition_by: PartitionByOption = None,
    upsert: UpsertOption = False,
    drop_value: DropValueOption = False,
    bad_values: BadValuesOption = None,
    once: OnceOption = False,
    every: EveryOption = 10.0,
    max_records: MaxRecordsOption = 1_000_000,
    file_bytes: FileBytesOption = DEFAULT_FILE_BYTES,
    compact: CompactOption = True,
    allow_loss: AllowLossOption = False,
    master: MasterOption = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    with exit_on_spark_errors():
        from penstock.spark.tables.rules import SyncRules
        from penstock.spark.tables.spec import REGISTRY_BYTES

        options = {
            "value": value,
            "columns": schema,
            "avro": read_avro(schema_file),
            "skip_bytes": REGISTRY_BYTES if registry_prefix else None,
            "evolves": evolve,
            "partition_by": tuple(partition_by) if partition_by else None,
            "upserts": upsert or None,
            "keeps_value": False if drop_value else None,
            "bad_values": bad_values,
        }
        requested = TableOptions(topics or [], table_format, options)
        rules = SyncRules(
            most_records=max_records,
            target_bytes=file_bytes,
            allows_loss=allow_loss,
            compacts=compact,
        )
        run = _Run(folder, get_spark_bootstrap(ctx, bootstrap), master, rules, once, every)
        _sync(requested, run, as_json=wants_json(ctx, as_json))


class _Run(NamedTuple):
    """The options of one run."""

    folder: Path
    bootstrap: str
    master: str | None
    rules: "SyncRules"
    once: bool
    every_s: float


def _sync(requested: TableOptions, run: _Run, *, as_json: bool) -> None:
    """Connects to the cluster before Spark starts, so that a wrong address fails at once."""
    from penstock.spark.tables.follow import FollowOptions, close_all, follow

    folder = get_table_folder(run.folder)
    client = _connect(run.bootstrap)
    tables = requested.open_tables(folder, client)
    display, stop = Display(as_json=as_json), threading.Event()
    follow_options = FollowOptions(
        once=run.once,
        every_s=run.every_s,
        stop=stop,
        rules=run.rules,
        show=display.show,
        note=note,
    )
    try:
        with (
            _session(run.folder, run.master) as spark,
            stopped_by_signals(stop, "stopping; the next run continues from here"),
        ):
            follow(tables, client, _tasks_on(spark), follow_options)
    finally:
        close_all(tables)
    show_totals(display.totals, as_json=as_json)


@contextmanager
def _session(folder: Path, master: str | None) -> "Iterator[SparkSession]":
    from penstock.spark.pipeline.launch import pipeline_session

    log_file = folder / "spark.log"
    note(f"starting Spark for tables in {folder}; its log is {log_file}")
    with pipeline_session("tables", {}, log_file, master=master) as spark:
        yield spark


def _tasks_on(spark: "SparkSession") -> "RunTasks":
    from penstock.spark.tables.spark_runner import SparkRunner

    return SparkRunner(spark)


@app.command(help=_STATUS_HELP)
def status(
    ctx: typer.Context,
    topics: TopicsArgument = None,
    folder: DirOption = DEFAULT_DIR,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    with exit_on_spark_errors():
        from penstock.spark.tables.status import find_tables, table_status

        names = topics or find_tables(folder)
        if not names:
            fail(f"there are no tables in {folder}", 1)
        client = _connect(get_spark_bootstrap(ctx, bootstrap))
        statuses = [table_status(get_table_folder(folder).of(name), client) for name in names]
    show_statuses(statuses, as_json=wants_json(ctx, as_json))


@app.command(help=_COMPACT_HELP)
def compact(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics.")],
    folder: DirOption = DEFAULT_DIR,
    file_bytes: FileBytesOption = DEFAULT_FILE_BYTES,
    keep_hours: KeepHoursOption = 168,
    master: MasterOption = None,
) -> None:
    with exit_on_spark_errors():
        from penstock.spark.tables.store import get_tables

        tables = get_table_folder(folder)
        stores = [store for name in topics for store in get_tables(tables.of(name))]
        with _session(folder, master) as spark:
            for store in stores:
                _compact(store, _tasks_on(spark), file_bytes, keep_hours)


def _compact(store: "TableStore", run_tasks: "RunTasks", file_bytes: int, keep_hours: int) -> None:
    from penstock.spark.tables.maintenance import maintain_table
    from penstock.spark.tables.rules import SyncRules

    rules, now_ms = SyncRules(target_bytes=file_bytes), time.time_ns() // 1_000_000
    done = maintain_table(store, run_tasks, rules, kept_ms=keep_hours * _HOUR_MS, now_ms=now_ms)
    print(f"{store.location.name}: {done.compacted} files merged, {done.deleted} deleted")
    store.close()


def _connect(bootstrap: str) -> "BlockingClient":
    from penstock.spark.connect.reachable import connect

    return connect(bootstrap)
