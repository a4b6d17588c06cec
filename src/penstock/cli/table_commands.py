"""`penstock table`: topics as tables, kept by Spark in Delta, Iceberg or plain Parquet."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    fail,
    get_bootstrap,
    keep_shared,
    wants_json,
)
from penstock.cli.pipeline_progress import note
from penstock.cli.stopping import stopped_by_signals
from penstock.cli.table_output import show_statuses, show_totals, sync_display

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.connections import BlockingClient
    from penstock.spark.tables.opening import Place, Tables
    from penstock.spark.tables.rules import SyncRules
    from penstock.spark.tables.spec import TableSpec

app = typer.Typer(
    add_completion=False,
    help="Keep topics as tables: Delta, Iceberg or Parquet, by Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DirOption = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="Folder of the tables, one folder for each topic."),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs.  [default: local[*]]"),
]
FileBytesOption = Annotated[
    int, typer.Option("--file-bytes", min=1024, metavar="N", help="Size that files ought to have.")
]
_DEFAULT_DIR = Path("penstock-tables")
_HOUR_MS = 3_600_000
_FILE_BYTES = 128 * 1024 * 1024

_SYNC_HELP = """Keep tables of topics until Ctrl-C; with --once, until they hold what is there now.

Every record is in its table exactly once, whatever is killed when: the table itself knows how far
it has come, and the next run goes on from there. What the table is to be is said once, when it is
made. Without TOPIC, all topics that have the setting penstock.table.format.

\b
Examples:
  penstock table sync orders --format delta --value json
  penstock table sync orders --once
  penstock table sync clicks --format iceberg --value json \\
      --schema "user STRING, at TIMESTAMP" --partition-by "day(at)"
  penstock table sync accounts --format delta --upsert
"""

_STATUS_HELP = """Show tables: rows, files, dead letters, and how far they are behind their topics.

\b
Examples:
  penstock table status
  penstock table status orders --json
"""

_COMPACT_HELP = """Make small files of a table into larger ones, and delete what is not needed.

A sync does the first by itself now and then. Files that nothing refers to any more are deleted once
they are older than --keep-hours: a reader may still be busy with them.

\b
Examples:
  penstock table compact orders
"""


@app.callback()
def _shared(
    ctx: typer.Context, bootstrap: BootstrapOption = None, as_json: JsonOption = False
) -> None:
    keep_shared(ctx, bootstrap, as_json)


@app.command(help=_SYNC_HELP)
def sync(
    ctx: typer.Context,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC...]", help="One or more.")
    ] = None,
    table_format: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="delta, iceberg or parquet.")
    ] = None,
    folder: DirOption = _DEFAULT_DIR,
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="KIND", help="raw, text, json or avro.  [default: raw]"),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="COLUMNS", help="Of JSON values: 'user STRING, n INT'."),
    ] = None,
    schema_file: Annotated[
        Path | None, typer.Option("--schema-file", metavar="FILE", help="Of Avro values.")
    ] = None,
    registry_prefix: Annotated[
        bool, typer.Option("--registry-prefix", help="Avro values begin with a schema's number.")
    ] = False,
    evolve: Annotated[
        bool | None,
        typer.Option(
            "--evolve/--no-evolve",
            help="New fields of JSON become columns.  [default: unless --schema is given]",
        ),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by", metavar="COLUMN", help="Or day(COLUMN) and the like; repeatable."
        ),
    ] = None,
    upsert: Annotated[
        bool, typer.Option("--upsert", help="One row for each key, the latest.")
    ] = False,
    drop_value: Annotated[
        bool, typer.Option("--drop-value", help="Columns alone, not the value as it came.")
    ] = False,
    bad_values: Annotated[
        str | None,
        typer.Option(
            "--bad-values", metavar="WHAT", help="dead-letter or fail.  [default: dead-letter]"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Until it is all there, then end.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Look for new records.")
    ] = 10.0,
    max_records: Annotated[
        int, typer.Option("--max-records", min=1, metavar="N", help="Of one commit.")
    ] = 1_000_000,
    file_bytes: FileBytesOption = _FILE_BYTES,
    compact: Annotated[
        bool, typer.Option("--compact/--no-compact", help="Small files into larger ones.")
    ] = True,
    allow_loss: Annotated[
        bool,
        typer.Option("--allow-loss", help="Go on where the topic has deleted what is missing."),
    ] = False,
    master: MasterOption = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.spark.tables.rules import SyncRules

    with _failures_told():
        asked = _Asked(
            topics=topics or [],
            table_format=table_format,
            given={
                "value": value,
                "columns": schema,
                "avro": _read_avro(schema_file),
                "skip_bytes": _REGISTRY_BYTES if registry_prefix else None,
                "evolves": evolve,
                "partition_by": tuple(partition_by) if partition_by else None,
                "upserts": upsert or None,
                "keeps_value": False if drop_value else None,
                "bad_values": bad_values,
            },
        )
        rules = SyncRules(
            most_records=max_records,
            target_bytes=file_bytes,
            allows_loss=allow_loss,
            compacts=compact,
        )
        address = get_bootstrap(ctx, bootstrap)
        as_json = wants_json(ctx, as_json)
        _sync(asked, folder, address, master, rules, once=once, every_s=every, as_json=as_json)


_REGISTRY_BYTES = 5


class _Asked:
    """What the command line says of tables."""

    def __init__(
        self, topics: list[str], table_format: str | None, given: dict[str, object]
    ) -> None:
        self.topics = topics
        self._format = table_format
        self._given = {name: value for name, value in given.items() if value is not None}
        if self._given.keys() - {"bad_values", "evolves"} and table_format is None:
            fail("say with --format what table it is to be, or leave its other options out", 2)
        if table_format is not None and not topics:
            fail("say which TOPIC is to become a table", 2)
        self._said = {topic: self._spec(topic) for topic in topics if table_format is not None}

    @property
    def changes(self) -> "dict[str, object]":
        from penstock.spark.tables.spec import parse_changes

        return parse_changes(self._given)

    def specs(self, client: "BlockingClient") -> "dict[str, TableSpec | None]":
        """By topic; None: the table is there, and says itself what it is."""
        from penstock.spark.tables.topic_tables import find_wanted

        if self._said:
            return dict(self._said)
        wanted = find_wanted(client, self.topics or None)
        if not self.topics and not wanted:
            fail(
                "no topic has the setting penstock.table.format: name one, or set it, as in "
                "penstock topic alter orders --config penstock.table.format=delta",
                2,
            )
        return {topic: wanted.get(topic) for topic in self.topics or wanted}

    def _spec(self, topic: str) -> "TableSpec":
        from penstock.spark.tables.spec import parse_spec

        return parse_spec({**self._given, "topic": topic, "format": self._format})


def _sync(
    asked: _Asked,
    folder: Path,
    bootstrap: str,
    master: str | None,
    rules: "SyncRules",
    *,
    once: bool,
    every_s: float,
    as_json: bool,
) -> None:
    from penstock.spark.tables.follow import Follow, close_all, follow

    place = _place(folder)
    client = _connect(bootstrap)
    tables = _open_tables(asked, place, client)
    stop = threading.Event()
    try:
        with (
            _session(folder, master) as spark,
            stopped_by_signals(stop, "stopping; the next run goes on from here"),
            sync_display(as_json=as_json) as display,
        ):
            from penstock.spark.tables.spark_runner import SparkRunner

            how = Follow(
                once=once, every_s=every_s, stop=stop, rules=rules, show=display.show, note=note
            )
            follow(tables, client, SparkRunner(spark), how)
        show_totals(display.totals, as_json=as_json)
    finally:
        close_all(tables)


def _open_tables(asked: _Asked, place: "Place", client: "BlockingClient") -> "list[Tables]":
    from penstock.spark.tables.opening import open_tables

    return [open_tables(place, spec, topic, client) for topic, spec in asked.specs(client).items()]


def _place(folder: Path) -> "Place":
    from penstock.spark.tables.opening import Place

    if "://" in str(folder) or ":/" in str(folder)[:8]:
        fail(f"--dir {folder}: tables are kept in folders of this machine, or mounted on it", 2)
    return Place(folder=folder)


@contextmanager
def _session(folder: Path, master: str | None) -> "Iterator[SparkSession]":
    from penstock.spark.pipeline.launch import pipeline_session

    log_file = folder / "spark.log"
    note(f"starting Spark for tables in {folder}; its log is {log_file}")
    with pipeline_session("tables", {}, log_file, master=master) as spark:
        yield spark


@app.command(help=_STATUS_HELP)
def status(
    ctx: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]")] = None,
    folder: DirOption = _DEFAULT_DIR,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.spark.tables.status import find_tables, table_status

    with _failures_told():
        names = topics or find_tables(folder)
        if not names:
            fail(f"there are no tables in {folder}", 1)
        client = _connect(get_bootstrap(ctx, bootstrap))
        found = [table_status(_place(folder).of(name), client) for name in names]
    show_statuses(found, as_json=wants_json(ctx, as_json))


@app.command(help=_COMPACT_HELP)
def compact(
    ctx: typer.Context,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    folder: DirOption = _DEFAULT_DIR,
    file_bytes: FileBytesOption = _FILE_BYTES,
    keep_hours: Annotated[
        int, typer.Option("--keep-hours", min=0, metavar="N", help="Of files no longer needed.")
    ] = 168,
    master: MasterOption = None,
) -> None:
    from penstock.spark.tables.rules import SyncRules
    from penstock.spark.tables.store import dead_letters_of, find_store, get_store
    from penstock.spark.tables.upkeep import tend

    with _failures_told():
        place = _place(folder)
        stores = [get_store(place.of(name)) for name in topics]
        beside = (find_store(dead_letters_of(each.location)) for each in stores)
        stores += [each for each in beside if each is not None]
        with _session(folder, master) as spark:
            from penstock.spark.tables.spark_runner import SparkRunner

            rules = SyncRules(target_bytes=file_bytes)
            for store in stores:
                now_ms = time.time_ns() // 1_000_000
                kept_ms = keep_hours * _HOUR_MS
                done = tend(store, SparkRunner(spark), rules, kept_ms=kept_ms, now_ms=now_ms)
                told = f"{done.compacted} files made into larger ones, {done.forgotten} deleted"
                print(f"{store.location.name}: {told}")
                store.close()


def _connect(bootstrap: str) -> "BlockingClient":
    """Half a second instead of half a minute until a user knows of a wrong address."""
    from penstock.spark.jobs.scope import connect

    return connect(bootstrap)


def _read_avro(file: Path | None) -> object:
    import json

    if file is None:
        return None
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        fail(f"--schema-file {file}: {error}", 2)


@contextmanager
def _failures_told() -> Iterator[None]:
    """Without a stack trace: 2 for what cannot be meant, 1 for what the world says."""
    from penstock.client.errors import ClientError
    from penstock.config.java import JavaMissing
    from penstock.spark.errors import SparkSourceError
    from penstock.spark.jobs.failures import JobFailed
    from penstock.spark.pipeline.failures import PipelineFailed
    from penstock.spark.pipeline.launch import check_spark

    try:
        check_spark()
        from pyspark.errors import PySparkException
    except PipelineFailed as error:
        fail(str(error), 1)
    from penstock.spark.pipeline.spark_messages import explain
    from penstock.spark.tables.errors import BadTableOption

    try:
        yield
    except BadTableOption as error:
        fail(str(error), 2)
    except (SparkSourceError, PipelineFailed, JobFailed, JavaMissing, ClientError) as error:
        fail(str(error), 1)
    except PySparkException as error:
        fail(explain(str(error)), 1)
