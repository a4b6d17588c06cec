"""Runs a pipeline on a few records and counts the rows of each step. Writes nothing.

Streams are read as they are now, as tables: watermarks drop nothing, and windows are all there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as f

from penstock.spark.codec.ddl_columns import quoted
from penstock.spark.pipeline.build import load_source, query, register_functions, view_rows
from penstock.spark.pipeline.connector_options import plain_name
from penstock.spark.pipeline.failures import QueryFailed
from penstock.spark.pipeline.lineage import read_directly
from penstock.spark.pipeline.problems import PipelineInvalid, Problem
from penstock.spark.pipeline.refining import count_violations, refine
from penstock.spark.pipeline.registered import with_registered_schemas
from penstock.spark.pipeline.shares import BadShare, share_of, shares_of
from penstock.spark.pipeline.spec import Pipeline, PipelineView, Sink, Source, Sql, TopicSource
from penstock.spark.pipeline.values import good_rows
from penstock.spark.session.spark_errors import SPARK_ERRORS
from penstock.spark.session.spark_messages import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_STREAMS = frozenset(
    ["maxoffsetspertrigger", "maxbytespertrigger", "minoffsetspertrigger", "maxtriggerdelay"]
)
_FROM_START = {"startingOffsets": "earliest"}


class TriedStep(NamedTuple):
    kind: str  # source, view or sink
    name: str
    rows_in: int
    rows_out: int
    bad: int  # records that do not parse
    violations: Mapping[str, int]
    rows: list[str]  # the first ones, as JSON


class Sample(NamedTuple):
    records: int  # of each source
    shown: int  # rows of each step


def try_pipeline(
    pipeline: Pipeline, spark: "SparkSession", bootstrap: str, sample: Sample
) -> Iterator[TriedStep]:
    """Step by step, in the file's order. Raises PipelineInvalid or QueryFailed at the first that
    fails."""
    pipeline = with_registered_schemas(pipeline)
    trial = _Trial(pipeline, spark, bootstrap, sample)
    register_functions(pipeline, spark)
    for source in pipeline.sources:
        yield trial.source(_as_table(source))
    for view in pipeline.views:
        yield trial.view(view)
    for sink in pipeline.sinks:
        yield from trial.sink(sink)


class _Trial:
    """One run. Owns the counts of the relations so far."""

    def __init__(
        self, pipeline: Pipeline, spark: "SparkSession", bootstrap: str, sample: Sample
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._bootstrap = bootstrap
        self._sample = sample
        self._counts: dict[str, int] = {}

    def source(self, source: Source) -> TriedStep:
        with _Failures(self._pipeline, source.line, f"source {source.name}"):
            loaded = load_source(source, self._spark, self._bootstrap)
            loaded = loaded.limit(self._sample.records).persist()
            rows_in = loaded.count()
            rows = good_rows(source, loaded) if isinstance(source, TopicSource) else loaded
            rows = rows.persist()
            bad = rows_in - rows.count()
            violations = count_violations(rows, source.refinement)
            refined = refine(rows, "source", source.name, source.refinement).persist()
            rows_out = self._keep(source.name, refined)
            shown = self._shown(refined)
        return TriedStep("source", source.name, rows_in, rows_out, bad, violations, shown)

    def view(self, view: PipelineView) -> TriedStep:
        rows_in = self._rows_of(view.reads)
        with _Failures(self._pipeline, view.line, f"view {view.name}"):
            rows = view_rows(self._pipeline, self._spark, view).persist()
            violations = count_violations(rows, view.refinement)
            refined = refine(rows, "view", view.name, view.refinement).persist()
            rows_out = self._keep(view.name, refined)
            shown = self._shown(refined)
        return TriedStep("view", view.name, rows_in, rows_out, 0, violations, shown)

    def sink(self, sink: Sink) -> Iterator[TriedStep]:
        what, rows_in = f"sink {sink.name}", self._rows_of(sink.reads)
        with _Failures(self._pipeline, sink.line, what):
            if isinstance(sink.reads, Sql):
                rows = query(self._pipeline, self._spark, sink.reads, what)
            else:
                rows = self._spark.table(sink.reads)
            rows = rows.persist()
        for share in shares_of(sink):
            with _Failures(self._pipeline, share.line, f"sink {share.name}"):
                written = share_of(rows, share).persist()
                # Everything is computed, also what a count does not need.
                written.write.format("noop").mode("overwrite").save()
                rows_out, shown = written.count(), self._shown(written)
            yield TriedStep("sink", share.name, rows_in, rows_out, 0, {}, shown)

    def _rows_of(self, reads: str | Sql) -> int:
        return sum(self._counts[name] for name in read_directly(reads, self._counts))

    def _keep(self, name: str, rows: "DataFrame") -> int:
        rows.createOrReplaceTempView(name)
        self._counts[name.lower()] = rows.count()
        return self._counts[name.lower()]

    def _shown(self, rows: "DataFrame") -> list[str]:
        if self._sample.shown == 0:
            return []
        columns = [
            f.decode(f.col(quoted(name)), "UTF-8").alias(name)
            if kind == "binary" and name in ("key", "value")
            else f.col(quoted(name))
            for name, kind in rows.dtypes
        ]
        text = f.to_json(f.struct(*columns)).alias("row")
        return [row.row for row in rows.limit(self._sample.shown).select(text).collect()]


class _Failures:
    """Reports what Spark raises with the file's line."""

    def __init__(self, pipeline: Pipeline, line: int, what: str) -> None:
        self._file = pipeline.file
        self._line = line
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, BadShare):
            problem = Problem(self._line, f"{self._what}: {error}")
            raise PipelineInvalid(self._file, [problem]) from None
        if isinstance(error, SPARK_ERRORS):
            message = f"{self._file}:{self._line}: {self._what}: {explain(str(error))}"
            raise QueryFailed(message) from None


def _as_table(source: Source) -> Source:
    if not isinstance(source, TopicSource):
        return replace(source, is_stream=False)
    options = {
        name: option
        for name, option in source.options.items()
        if plain_name(name) not in _OF_STREAMS
    }
    is_latest = source.start.get("startingOffsets") == "latest"
    start = _FROM_START if is_latest else source.start
    return replace(source, is_stream=False, options=options, start=start)
