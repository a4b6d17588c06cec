"""`penstock job`: audit, replay and measure topics on Spark.

Exit code 0: done, and an audit found no problems. 1: the job failed, or an audit found problems.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    command_group,
    fail,
    wants_json,
)
from penstock.cli.job_output import show_audit, show_replay, show_stats, write_plots
from penstock.cli.job_progress import job_progress
from penstock.cli.pipeline_progress import note
from penstock.cli.spark_work import MasterOption, exit_on_spark_errors, get_spark_bootstrap
from penstock.cli.stopping import stopped_by_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.client.data_calls import IsolationLevel
    from penstock.spark.connect.connections import BlockingClient
    from penstock.spark.jobs.running import JobWatch
    from penstock.spark.jobs.scope import JobScope

_Options = TypeVar("_Options")
_Result = TypeVar("_Result")

app = command_group("Audit, replay and measure topics on Spark.")

TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.")]
PartitionsOption = Annotated[
    str | None,
    typer.Option("--partitions", metavar="0,1", help="Partitions to read.  [default: all]"),
]
_EDGE = "an offset, a time (2026-01-31T13:45:00Z), earliest or latest"
StartOption = Annotated[str, typer.Option("--start", metavar="WHERE", help=f"Start: {_EDGE}.")]
EndOption = Annotated[
    str, typer.Option("--end", metavar="WHERE", help=f"End (exclusive): {_EDGE}.")
]
IsolationOption = Annotated[
    str,
    typer.Option("--isolation", metavar="LEVEL", help="read_committed or read_uncommitted."),
]

_AUDIT_HELP = """Check that every record is present, once, in order and intact.

Checks every batch of every partition (CRC, records, offsets, leader epochs, producer sequences),
then compares records with each other. Offsets removed by compaction and transaction markers are not
problems. Each problem is reported with its topic, partition and offset.

\b
Examples:
  penstock job audit orders
  penstock job audit orders payments --start 2026-01-31T00:00:00Z
  penstock job audit orders --identity key,value
  penstock job audit orders --sequence "get_json_object(cast(value AS string), '$.number')"
"""

_REPLAY_HELP = """Copy a range of a topic into another topic, unchanged or transformed.

SQL expressions see the columns key, value (both binary), headers, topic, partition, offset and
timestamp. A Python function takes a record and returns it, changed with record._replace(value=...),
or a list of records, or None to drop it.

\b
Examples:
  penstock job replay orders orders-copy --create
  penstock job replay orders test --start 2026-01-31T13:00:00Z --end 2026-01-31T14:00:00Z
  penstock job replay orders test --where "partition = 0" --value "upper(cast(value AS string))"
  penstock job replay orders test --function masking.py:hide_names --keep-partitions
"""

_STATS_HELP = """Measure topics: sizes, keys, skew and rates; with --plots also as SVG charts.

\b
Examples:
  penstock job stats orders
  penstock job stats orders payments --plots ./plots --top 20
"""


@app.command(help=_AUDIT_HELP)
def audit(
    ctx: typer.Context,
    topics: TopicsArgument,
    partitions: PartitionsOption = None,
    start: StartOption = "earliest",
    end: EndOption = "latest",
    compare: Annotated[
        bool, typer.Option(help="Compare records with each other to find duplicates.")
    ] = True,
    identity: Annotated[
        str | None,
        typer.Option(
            "--identity",
            metavar="COLUMNS",
            help="Columns that make records duplicates: key,value,headers,timestamp.",
        ),
    ] = None,
    sequence: Annotated[
        str | None,
        typer.Option(
            "--sequence",
            metavar="SQL",
            help="A record's number, which grows by one within its key.",
        ),
    ] = None,
    master: MasterOption = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    as_json = wants_json(ctx, as_json)
    with exit_on_spark_errors():
        from penstock.spark.jobs.audit import Audit, run_audit
        from penstock.spark.jobs.content import Identity, parse_identity

        options = Audit(
            scope=_scope(topics, partitions, start, end),
            compares=compare,
            identity=Identity() if identity is None else parse_identity(identity),
            sequence=sequence,
        )
        run = _JobRun("audit", get_spark_bootstrap(ctx, bootstrap), master, as_json)
        result = _run(run, run_audit, options)
    show_audit(result, as_json=as_json)
    if result.problems:
        raise typer.Exit(1)


@app.command(help=_REPLAY_HELP)
def replay(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Topic to write to.")],
    partitions: PartitionsOption = None,
    start: StartOption = "earliest",
    end: EndOption = "latest",
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Copy only matching records.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="SQL", help="Expression for the new key.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="SQL", help="Expression for the new value.")
    ] = None,
    function: Annotated[
        str | None,
        typer.Option("--function", metavar="MODULE:NAME", help="Python function to apply."),
    ] = None,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="Keep partition numbers, ignore keys.")
    ] = False,
    mark_origin: Annotated[
        bool, typer.Option("--mark-origin", help="Add headers with each record's origin.")
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create TARGET with as many partitions.")
    ] = False,
    compression: Annotated[
        str, typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4, zstd.")
    ] = "none",
    isolation: IsolationOption = "read_committed",
    master: MasterOption = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    as_json = wants_json(ctx, as_json)
    with exit_on_spark_errors():
        from penstock.spark.jobs.replay import Replay, run_replay
        from penstock.spark.jobs.replay_function import load_function

        options = Replay(
            scope=_scope([topic], partitions, start, end),
            target=target,
            where=where,
            key=key,
            value=value,
            function=None if function is None else load_function(function),
            keeps_partitions=keep_partitions,
            marks_origin=mark_origin,
            creates_target=create,
            isolation=_isolation(isolation),
            compression=_codec(compression),
        )
        run = _JobRun("replay", get_spark_bootstrap(ctx, bootstrap), master, as_json)
        result = _run(run, run_replay, options)
    show_replay(result, target, as_json=as_json)


@app.command(help=_STATS_HELP)
def stats(
    ctx: typer.Context,
    topics: TopicsArgument,
    partitions: PartitionsOption = None,
    start: StartOption = "earliest",
    end: EndOption = "latest",
    top: Annotated[int, typer.Option(min=0, metavar="N", help="Most frequent keys to list.")] = 10,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="DIR", help="Write SVG charts to DIR.")
    ] = None,
    isolation: IsolationOption = "read_committed",
    master: MasterOption = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    as_json = wants_json(ctx, as_json)
    with exit_on_spark_errors():
        from penstock.spark.jobs.stats import Stats, run_stats

        options = Stats(
            scope=_scope(topics, partitions, start, end),
            top=top,
            isolation=_isolation(isolation),
        )
        run = _JobRun("stats", get_spark_bootstrap(ctx, bootstrap), master, as_json)
        result = _run(run, run_stats, options)
    show_stats(result, as_json=as_json)
    for path in write_plots(result, plots) if plots is not None else ():
        note(f"wrote {path}")


class _JobRun(NamedTuple):
    name: str
    bootstrap: str
    master: str | None
    as_json: bool


def _run(
    run: _JobRun,
    work: "Callable[[SparkSession, BlockingClient, _Options, JobWatch], _Result]",
    options: _Options,
) -> _Result:
    """Connects to the cluster before Spark starts, so that a wrong address fails at once."""
    from penstock.spark.connect.reachable import connect
    from penstock.spark.jobs.running import JobWatch
    from penstock.spark.pipeline.launch import log_file_of, pipeline_session
    from penstock.spark.pipeline.spec import DEFAULT_CHECKPOINTS

    client = connect(run.bootstrap)
    log_file = log_file_of(DEFAULT_CHECKPOINTS, f"job-{run.name}")
    note(f"starting Spark for job {run.name}; its log is {log_file}")
    stop = threading.Event()
    with (
        pipeline_session(f"job {run.name}", {}, log_file, master=run.master) as spark,
        stopped_by_signals(stop, "stopping"),
        job_progress(as_json=run.as_json) as show,
    ):
        return work(spark, client, options, JobWatch(stop=stop, show=show))


def _scope(topics: list[str], partitions: str | None, start: str, end: str) -> "JobScope":
    from penstock.spark.jobs.scope import JobScope, parse_edge, parse_partitions

    return JobScope(
        topics=tuple(dict.fromkeys(topics)),
        partitions=None if partitions is None else parse_partitions(partitions),
        start=parse_edge("--start", start),
        end=parse_edge("--end", end),
    )


def _isolation(text: str) -> "IsolationLevel":
    from penstock.client.data_calls import IsolationLevel

    names = {level.name.lower(): level for level in IsolationLevel}
    if text not in names:
        fail(f"--isolation {text!r}: write one of {', '.join(names)}", 2)
    return names[text]


def _codec(text: str) -> str:
    from penstock.protocol.compression import Codec

    names = [codec.name.lower() for codec in Codec]
    if text not in names:
        fail(f"--compression {text!r}: write one of {', '.join(names)}", 2)
    return text
