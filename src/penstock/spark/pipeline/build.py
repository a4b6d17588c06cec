"""Builds a pipeline's sources and views as Spark DataFrames and temporary views. Runs no query.

Errors from Spark are reported with the file's line and without Spark's own decoration.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.pipeline.connector_options import source_options, values_of
from penstock.spark.pipeline.problems import PipelineInvalid, Problem
from penstock.spark.pipeline.spec import (
    FileSource,
    Pipeline,
    Sink,
    Source,
    Sql,
    TableSource,
    TopicSource,
    TopicTarget,
)
from penstock.spark.pipeline.values import dead_letters, good_rows, records_of
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


def build_sources_and_views(pipeline: Pipeline, spark: "SparkSession", bootstrap: str) -> None:
    """Registers each as a temporary view; a view may use the sources and the views above it."""
    for source in pipeline.sources:
        with _errors_with_line(pipeline, source.line, f"source {source.name}"):
            _read(source, spark, bootstrap).createOrReplaceTempView(source.name)
    for view in pipeline.views:
        query(pipeline, spark, view.sql, f"view {view.name}").createOrReplaceTempView(view.name)


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
    return Flow(sink, rows)


def build_dead_letters(pipeline: Pipeline, spark: "SparkSession", bootstrap: str) -> Iterator[Flow]:
    for source in pipeline.topic_sources():
        sink = pipeline.dead_letter_sink(source)
        if sink is not None:
            records = _records(source, spark, source_options(source, bootstrap, headers=True))
            yield Flow(sink, dead_letters(source, records, pipeline.name))


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


def _read(source: Source, spark: "SparkSession", bootstrap: str) -> "DataFrame":
    if isinstance(source, TopicSource):
        records = _records(source, spark, source_options(source, bootstrap))
        rows = good_rows(source, records)
    elif isinstance(source, FileSource):
        rows = _files(source, spark)
    else:
        rows = _table(source, spark)
    if source.watermark is not None:
        rows = rows.withWatermark(source.watermark.column, source.watermark.delay)
    _ = rows.schema
    return rows


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
