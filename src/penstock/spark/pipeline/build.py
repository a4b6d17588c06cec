"""Builds a pipeline's sources and views as Spark DataFrames and temporary views. Runs no query.

Errors from Spark are reported with the file's line and without Spark's own decoration.
"""

import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.pipeline.connector_options import source_options, values_of
from penstock.spark.pipeline.problems import PipelineInvalid, Problem
from penstock.spark.pipeline.python_functions import (
    NoFunction,
    load_function,
    return_type_of,
    travel_with_functions,
)
from penstock.spark.pipeline.refining import refine
from penstock.spark.pipeline.shares import BadShare, share_of, shares_of
from penstock.spark.pipeline.spec import (
    BranchTargets,
    FileSource,
    LakeTarget,
    Pipeline,
    PipelineView,
    PythonFunction,
    Sink,
    Source,
    Sql,
    SqlFunction,
    TableSource,
    TopicSource,
    TopicTarget,
)
from penstock.spark.pipeline.values import dead_letters, good_rows, records_of, row_dead_letters
from penstock.spark.session.spark_errors import SPARK_ERRORS
from penstock.spark.session.spark_messages import explain, find_line
from penstock.spark.sink.null_headers import fill_null_headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "penstock"


class Flow(NamedTuple):
    """The rows that go to a sink."""

    sink: Sink
    rows: "DataFrame"


class Relations(NamedTuple):
    """What the sources and views of a pipeline have become."""

    unrefined: "dict[str, DataFrame]"  # rows of views before their expectations, by name


def build_sources_and_views(pipeline: Pipeline, spark: "SparkSession", bootstrap: str) -> Relations:
    """Registers functions and, as temporary views, sources and views; a view may use the sources
    and the views above it."""
    register_functions(pipeline, spark)
    for source in pipeline.sources:
        with _errors_with_line(pipeline, source.line, f"source {source.name}"):
            _read(source, spark, bootstrap).createOrReplaceTempView(source.name)
    unrefined = {}
    for view in pipeline.views:
        unrefined[view.name] = rows = view_rows(pipeline, spark, view)
        with _errors_with_line(pipeline, view.line, f"view {view.name}"):
            refined = refine(rows, "view", view.name, view.refinement)
            refined.createOrReplaceTempView(view.name)
    return Relations(unrefined)


def view_rows(pipeline: Pipeline, spark: "SparkSession", view: PipelineView) -> "DataFrame":
    """The rows of a view before they are refined."""
    what = f"view {view.name}"
    if isinstance(view.reads, Sql):
        rows = query(pipeline, spark, view.reads, what)
    else:
        with _errors_with_line(pipeline, view.line, what):
            rows = spark.table(view.reads)
    if view.python is None:
        return rows
    function = _load(pipeline, view.python, what)
    with _errors_with_line(pipeline, view.python.line, what):
        try:
            result = function(rows)
            _ = result.schema
        except SPARK_ERRORS:
            raise
        except Exception as error:  # the function is the user's: it may raise anything
            reason = f"{view.python.path} failed: {type(error).__name__}: {error}".splitlines()[0]
            raise _invalid(pipeline, view.python.line, f"{what}: {reason}") from None
    return typing.cast("DataFrame", result)


def register_functions(pipeline: Pipeline, spark: "SparkSession") -> None:
    for function in pipeline.functions:
        what = f"function {function.name}"
        loaded = _load(pipeline, function.python, what)
        with _errors_with_line(pipeline, function.line, what):
            try:
                register(spark, function, loaded)
            except NoFunction as error:
                raise _invalid(pipeline, function.line, f"{what}: {error}") from None


def register(spark: "SparkSession", function: SqlFunction, loaded: Callable[..., Any]) -> None:
    """A function that Spark's own decorators have made is taken as it is."""
    if hasattr(loaded, "evalType"):
        name_of: Any = spark.udtf if not hasattr(loaded, "returnType") else spark.udf
        name_of.register(function.name, loaded)
        return
    returns = function.python.returns or return_type_of(loaded)
    spark.udf.register(function.name, loaded, returns)


def _load(pipeline: Pipeline, python: PythonFunction, what: str) -> Callable[..., Any]:
    folder = Path(pipeline.folder)
    try:
        function = python.function or load_function(python.path, folder)
    except NoFunction as error:
        raise _invalid(pipeline, python.line, f"{what}: {error}") from None
    travel_with_functions(folder)
    return function


def build_flow(pipeline: Pipeline, spark: "SparkSession", sink: Sink) -> Flow:
    what = f"sink {sink.name}"
    if isinstance(sink.reads, Sql):
        rows = query(pipeline, spark, sink.reads, what)
    else:
        with _errors_with_line(pipeline, sink.line, what):
            rows = spark.table(sink.reads)
    if isinstance(sink.target, TopicTarget):
        with _errors_with_line(pipeline, sink.line, what):
            rows = fill_null_headers(records_of(rows, sink.target))
    elif isinstance(sink.target, BranchTargets | LakeTarget):
        _check_shares(pipeline, sink, rows)
    return Flow(sink, rows)


def _check_shares(pipeline: Pipeline, sink: Sink, rows: "DataFrame") -> None:
    """The shares are made anew for each micro-batch: their mistakes show here already."""
    if not hasattr(rows.sparkSession, "sparkContext"):
        raise _invalid(
            pipeline,
            sink.line,
            f"sink {sink.name}: upsert, scd2, Delta and Iceberg tables and several targets are "
            "written by the driver: use --master, not --remote",
        )
    for share in shares_of(sink):
        with _errors_with_line(pipeline, share.line, f"sink {share.name}"):
            try:
                _ = share_of(rows, share).schema
            except BadShare as error:
                raise _invalid(pipeline, share.line, f"sink {share.name}: {error}") from None


def build_dead_letters(
    pipeline: Pipeline, spark: "SparkSession", bootstrap: str, relations: Relations
) -> Iterator[Flow]:
    for source in pipeline.topic_sources():
        sink = pipeline.dead_letter_sink(source)
        if sink is not None:
            records = _records(source, spark, source_options(source, bootstrap, headers=True))
            with _errors_with_line(pipeline, source.line, f"source {source.name}"):
                letters = dead_letters(source, records, pipeline.name)
            yield Flow(sink, letters)
    for view in pipeline.views:
        sink = pipeline.dead_letter_sink(view)
        if sink is not None:
            with _errors_with_line(pipeline, view.line, f"view {view.name}"):
                letters = row_dead_letters(view, relations.unrefined[view.name], pipeline.name)
            yield Flow(sink, letters)


def query(pipeline: Pipeline, spark: "SparkSession", sql: Sql, what: str) -> "DataFrame":
    """Runs the SQL; an error is reported with the line of the file that it is in."""
    try:
        rows = spark.sql(sql.text)
        _ = rows.schema
    except SPARK_ERRORS as error:
        line = sql.line + (find_line(str(error)) or 1) - 1
        problem = Problem(line, f"SQL of {what}: {explain(str(error))}")
        raise PipelineInvalid(pipeline.file, [problem]) from None
    return rows


@contextmanager
def _errors_with_line(pipeline: Pipeline, line: int, what: str) -> Iterator[None]:
    try:
        yield
    except SPARK_ERRORS as error:
        problem = Problem(line, f"{what}: {explain(str(error))}")
        raise PipelineInvalid(pipeline.file, [problem]) from None


def _invalid(pipeline: Pipeline, line: int, message: str) -> PipelineInvalid:
    return PipelineInvalid(pipeline.file, [Problem(line, message)])


def _read(source: Source, spark: "SparkSession", bootstrap: str) -> "DataFrame":
    rows = load_source(source, spark, bootstrap)
    if isinstance(source, TopicSource):
        rows = good_rows(source, rows)
    rows = refine(rows, "source", source.name, source.refinement)
    _ = rows.schema
    return rows


def load_source(source: Source, spark: "SparkSession", bootstrap: str) -> "DataFrame":
    """The records of topics as they are, or the rows of files and tables."""
    if isinstance(source, TopicSource):
        return _records(source, spark, source_options(source, bootstrap))
    return _files(source, spark) if isinstance(source, FileSource) else _table(source, spark)


def _records(source: TopicSource, spark: "SparkSession", options: dict[str, str]) -> "DataFrame":
    reader = spark.readStream if source.is_stream else spark.read
    return reader.format(FORMAT).options(**options).load()


def _files(source: FileSource, spark: "SparkSession") -> "DataFrame":
    reader = spark.readStream if source.is_stream else spark.read
    reader = reader.format(source.format).options(**values_of(source.options))
    if source.columns is not None:
        reader = reader.schema(source.columns)
    return reader.load(source.path)


def _table(source: TableSource, spark: "SparkSession") -> "DataFrame":
    reader = spark.readStream if source.is_stream else spark.read
    return reader.options(**values_of(source.options)).table(source.table)
