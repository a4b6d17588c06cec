"""`penstock pipeline`: run a pipeline on Spark, check its file, or write a new one."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    Shared,
    command_group,
    fail,
    wants_json,
)
from penstock.cli.pipeline_progress import note, progress_display, show_totals
from penstock.cli.pipeline_steps import show_steps
from penstock.cli.prepare_spark import PREPARE_HELP, prepare
from penstock.cli.spark_work import MasterOption, get_spark_bootstrap
from penstock.cli.stopping import stopped_by_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipeline.progress import QueryTotals
    from penstock.spark.pipeline.spec import Pipeline

app = command_group("Run pipelines on Spark, from topics to topics, tables and files.")

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="YAML, SQL or Python; or of pyspark.pipelines.")
]
RemoteOption = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host.")
]

_STOPPING = "stopping; the next run continues from here"

_RUN_HELP = """Run a pipeline until Ctrl-C; with --once, until it has read all available data.

FILE is YAML with SQL (see `penstock pipeline init`), SQL statements (.sql) or Python that calls
`declare`; or what Spark's declarative API takes, a Python file or spark-pipeline.yml, which always
runs once. Checkpoints are kept under ./penstock-checkpoints, beside Spark's log; the next run
continues from there.

\b
Examples:
  penstock pipeline run clicks.yaml
  penstock pipeline run clicks.yaml --once --bootstrap broker:9092
  penstock pipeline run clicks.yaml --master spark://host:7077
"""

_CHECK_HELP = """Report mistakes in a pipeline's file with line numbers; run nothing.

Reads only the file, which is instant, and says what it did not check. --topics also checks that
the topics exist, --sql has Spark check the SQL.

\b
Examples:
  penstock pipeline check clicks.yaml
  penstock pipeline check clicks.yaml --topics --sql
"""

_TRY_HELP = """Run a pipeline on a few records; show the rows of each step, write nothing.

Reads N records of each source from where a new pipeline would start, as tables, and shows for each
source, view and sink how many rows come in and go out, how many do not parse or violate an
expectation, and the first rows.

\b
Examples:
  penstock pipeline try clicks.yaml
  penstock pipeline try clicks.yaml --records 1000 --rows 0 --json
"""

_INIT_HELP = """Write an example pipeline that explains every setting.

\b
Examples:
  penstock pipeline init clicks.yaml
  penstock pipeline init        # to stdout
"""

_STRIP_HELP = """Prepare a query's checkpoint for Spark's own Kafka connector.

Removes from its offsets what only format("penstock") writes, such as topic ids; then
format("kafka") continues where the query ended, and so does format("penstock"), which takes the
topics as they are now. The query must not be running. Only checkpoints on a local disk: copy others
first.

\b
Examples:
  penstock pipeline strip-checkpoint penstock-checkpoints/clicks/counts
"""


@app.command(help=_RUN_HELP)
def run(
    ctx: typer.Context,
    file: FileArgument,
    master: MasterOption = None,
    remote: RemoteOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Read the available data, then end.")
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    target = _spark_target(master, remote)
    as_json = wants_json(ctx, as_json)
    with _exit_on_errors():
        if _is_declarative(file):
            totals = _run_python(file, target, _address(ctx, bootstrap), as_json)
        else:
            pipeline = _read(file)
            address = _address(ctx, bootstrap, pipeline.bootstrap)
            totals = _run_yaml(pipeline, target, address, once, as_json)
    show_totals(totals, as_json=as_json)


class SparkTarget(NamedTuple):
    """Where Spark runs. At most one is set."""

    master: str | None
    remote: str | None


def _run_yaml(
    pipeline: "Pipeline", target: SparkTarget, bootstrap: str, once: bool, as_json: bool
) -> "Mapping[str, QueryTotals]":
    from penstock.spark.pipeline.preflight import check_topics

    check_topics(pipeline, bootstrap)
    stop = threading.Event()
    with (
        stopped_by_signals(stop, _STOPPING),
        _session(pipeline, target, stop) as spark,
        stopped_by_signals(stop, _STOPPING),  # Spark has set a handler of its own
        progress_display(as_json=as_json) as show,
    ):
        from penstock.spark.pipeline.run import PipelineRun, run_pipeline

        options = PipelineRun(bootstrap=bootstrap, once=once, stop=stop, show=show, note=note)
        return run_pipeline(pipeline, spark, options)


@contextmanager
def _session(
    pipeline: "Pipeline", target: SparkTarget, stop: threading.Event | None = None
) -> "Iterator[SparkSession]":
    from penstock.spark.pipeline.launch import log_file_of, pipeline_session

    log_file = log_file_of(pipeline.checkpoints, pipeline.name)
    note(f"starting Spark for pipeline {pipeline.name}; its log is {log_file}")
    with pipeline_session(
        pipeline.name,
        pipeline.settings,
        log_file,
        low_latency=pipeline.low_latency,
        own_group=True,
        stop=stop,
        **target._asdict(),
    ) as spark:
        yield spark


def _run_python(
    file: Path, target: SparkTarget, bootstrap: str, as_json: bool
) -> "Mapping[str, QueryTotals]":
    from penstock.spark.pipeline.declared import (
        DeclaredPipeline,
        QueryWatch,
        check_declared,
        run_declared,
        server_address,
        server_settings,
    )
    from penstock.spark.pipeline.launch import check_remote, pipeline_session

    check_declared(file)
    if target.remote is not None:
        check_remote(target.remote)
    declared = DeclaredPipeline.of(file, bootstrap)
    note(f"starting Spark for {file}; its log is {declared.log_file}")
    stop = threading.Event()
    if target.remote is not None:
        with stopped_by_signals(stop, _STOPPING):
            run_declared(declared, target.remote, stop=stop, note=note)
            return {}
    settings = server_settings(declared)
    with (
        stopped_by_signals(stop, _STOPPING),
        pipeline_session(
            file.stem, settings, declared.log_file, master=target.master, own_group=True
        ) as spark,
        stopped_by_signals(stop, _STOPPING),  # Spark has set a handler of its own
        progress_display(as_json=as_json) as show,
    ):
        watch = QueryWatch(spark, show)
        run_declared(declared, server_address(spark), stop=stop, note=note, watch=watch)
        return watch.totals


@app.command("try", help=_TRY_HELP)
def try_(
    ctx: typer.Context,
    file: FileArgument,
    records: Annotated[
        int, typer.Option("--records", min=1, metavar="N", help="Records of each source.")
    ] = 100,
    rows: Annotated[
        int, typer.Option("--rows", min=0, metavar="N", help="Rows of each step to show.")
    ] = 3,
    master: MasterOption = None,
    remote: RemoteOption = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    target, as_json = _spark_target(master, remote), wants_json(ctx, as_json)
    with _exit_on_errors():
        if _is_declarative(file):
            fail(f"{file} is one of Spark's declarative API, which has no trial runs", 2)
        pipeline = _read(file)
        address = _address(ctx, bootstrap, pipeline.bootstrap)
        from penstock.spark.pipeline.preflight import check_topics

        check_topics(pipeline, address, read_only=True)
        with _session(pipeline, target) as spark:
            from penstock.spark.pipeline.trying import Sample, try_pipeline

            steps = try_pipeline(pipeline, spark, address, Sample(records, rows))
            show_steps(steps, as_json=as_json)


@app.command(help=_CHECK_HELP)
def check(
    ctx: typer.Context,
    file: FileArgument,
    topics: Annotated[bool, typer.Option("--topics", help="Check that the topics exist.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Have Spark check the SQL.")] = False,
    master: MasterOption = None,
    remote: RemoteOption = None,
    bootstrap: BootstrapOption = None,
) -> None:
    target = _spark_target(master, remote)
    with _exit_on_errors():
        if _is_declarative(file):
            from penstock.spark.pipeline.declared import check_declared

            check_declared(file)
        else:
            pipeline = _read(file)
            address = _address(ctx, bootstrap, pipeline.bootstrap)
            if topics:
                from penstock.spark.pipeline.preflight import check_topics

                check_topics(pipeline, address)
            if sql:
                _check_sql(pipeline, target, address)
    left = _not_checked(file, topics=topics, sql=sql)
    print(f"{file}: no problems found" + (f"; not checked: {left}" if left else ""))


def _not_checked(file: Path, *, topics: bool, sql: bool) -> str:
    if _is_declarative(file):
        return "what it declares, which Spark knows"
    left = (("topics (--topics)", topics), ("SQL (--sql)", sql))
    return ", ".join(what for what, is_checked in left if not is_checked)


def _check_sql(pipeline: "Pipeline", target: SparkTarget, bootstrap: str) -> None:
    with _session(pipeline, target) as spark:
        from penstock.spark.pipeline.build import build_flow, build_sources_and_views
        from penstock.spark.pipeline.registered import with_registered_schemas

        pipeline = with_registered_schemas(pipeline)
        build_sources_and_views(pipeline, spark, bootstrap)
        for sink in pipeline.sinks:
            build_flow(pipeline, spark, sink)


@app.command(help=_INIT_HELP)
def init(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="File to write.  [default: stdout]")
    ] = None,
) -> None:
    from importlib.resources import files

    text = (files("penstock.spark.pipeline") / "example.yaml").read_text()
    if file is None:
        print(text, end="")
        return
    try:
        with file.open("x") as out:
            out.write(text)
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}", 1)
    print(f"wrote {file}; edit it, then: penstock pipeline run {file}")


app.command(help=PREPARE_HELP)(prepare)


@app.command("strip-checkpoint", help=_STRIP_HELP)
def strip(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The query's checkpointLocation.")
    ],
) -> None:
    from penstock.spark.source.checkpoint_files import strip_checkpoint

    with _exit_on_errors():
        changed = strip_checkpoint(folder)
    print(f'{folder}: stripped {changed} files of offsets; format("kafka") can continue it')


def _is_declarative(file: Path) -> bool:
    """Whether the file is one of Spark's declarative API, which Spark's own runner runs."""
    from penstock.spark.pipeline.declared import SPECIFICATIONS, is_specification
    from penstock.spark.pipeline.python_document import is_pipeline_python

    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError):
        return file.suffix == ".py"
    if file.suffix in SPECIFICATIONS:
        return is_specification(text)
    return file.suffix == ".py" and not is_pipeline_python(text)


def _read(file: Path) -> "Pipeline":
    from penstock.spark.pipeline.reading import read_pipeline

    try:
        text = file.read_text()
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", 2)
    except UnicodeDecodeError:
        fail(f"cannot read {file}: not UTF-8 text", 2)
    return read_pipeline(str(file), text, lambda name: (file.parent / name).read_text())


def _address(ctx: typer.Context, option: str | None, in_file: str | None = None) -> str:
    """The address from the command line, else the file, the environment, or the default."""
    on_command_line = option or (ctx.obj.bootstrap if isinstance(ctx.obj, Shared) else None)
    return get_spark_bootstrap(ctx, on_command_line or in_file)


def _spark_target(master: str | None, remote: str | None) -> SparkTarget:
    if master is not None and remote is not None:
        fail("use --master or --remote, not both", 2)
    return SparkTarget(master, remote)


@contextmanager
def _exit_on_errors() -> Iterator[None]:
    """Prints errors without a stack trace; exits with 2 if the file is wrong, else with 1."""
    from penstock.config.java import JavaMissing
    from penstock.spark.failures import SparkWorkFailed
    from penstock.spark.pipeline.problems import PipelineInvalid
    from penstock.spark.pipeline.tree import YamlMissing
    from penstock.spark.session.connect_server import ConnectStopped

    try:
        yield
    except PipelineInvalid as error:
        for line in str(error).splitlines():
            typer.echo(f"penstock: {line}", err=True)
        raise typer.Exit(2) from None
    except ConnectStopped as error:
        typer.echo(f"penstock: {error}", err=True)
        sys.stderr.flush()
        os._exit(1)
    except (SparkWorkFailed, JavaMissing, YamlMissing) as error:
        fail(str(error), 1)
