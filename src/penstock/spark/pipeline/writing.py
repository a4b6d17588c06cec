"""Writes rows to their target: streams as streaming queries, everything else once."""

from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.batch_writing import write_batches, write_once_to_all
from penstock.spark.pipeline.build import FORMAT, Flow
from penstock.spark.pipeline.connector_options import sink_options, values_of
from penstock.spark.pipeline.failures import QueryFailed
from penstock.spark.pipeline.problems import PipelineInvalid, Problem
from penstock.spark.pipeline.progress import WRITTEN, WRITTEN_ROWS
from penstock.spark.pipeline.spec import (
    BranchTargets,
    FileTarget,
    FormatTarget,
    LakeTarget,
    OutputMode,
    Pipeline,
    Sink,
    TableTarget,
    TopicTarget,
)
from penstock.spark.session.spark_errors import SPARK_ERRORS
from penstock.spark.session.spark_messages import explain
from penstock.spark.sink.update_mode import write_updates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Query(NamedTuple):
    name: str
    line: int
    checkpoint: str
    running: "StreamingQuery"


def start_query(pipeline: Pipeline, flow: Flow, bootstrap: str, *, once: bool) -> Query:
    sink = flow.sink
    if sink.mode is OutputMode.OVERWRITE:
        raise _invalid(pipeline, sink, "a stream cannot overwrite: drop `mode:`")
    writer = (
        _counted(flow.rows)
        .writeStream.queryName(sink.name)
        .outputMode(sink.mode or OutputMode.APPEND)
    )
    writer = writer.option("checkpointLocation", sink.checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    elif sink.trigger is not None:
        writer = writer.trigger(processingTime=sink.trigger)
    try:
        if isinstance(sink.target, BranchTargets | LakeTarget):
            running = writer.foreachBatch(write_batches(sink, bootstrap)).start()
        else:
            running = _start(writer, sink, bootstrap)
        return Query(sink.name, sink.line, sink.checkpoint, running)
    except SPARK_ERRORS as error:
        raise _invalid(pipeline, sink, explain(str(error))) from None


def _counted(rows: "DataFrame") -> "DataFrame":
    """The same rows; Spark counts those of each micro-batch on their way."""
    from pyspark.sql import functions as f

    return rows.observe(WRITTEN, f.count(f.lit(1)).alias(WRITTEN_ROWS))


def _start(writer: "DataStreamWriter", sink: Sink, bootstrap: str) -> "StreamingQuery":
    target = sink.target
    assert not isinstance(target, BranchTargets | LakeTarget)
    if isinstance(target, TopicTarget):
        options = sink_options(target, sink, bootstrap)
        if sink.mode is OutputMode.UPDATE:
            return write_updates(writer, options).start()
        return writer.format(FORMAT).options(**options).start()
    writer = writer.options(**values_of(sink.options))
    if isinstance(target, FormatTarget):
        return writer.format(target.format).start()
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)
    if isinstance(target, FileTarget):
        return writer.format(target.format).start(target.path)
    return (writer.format(target.format) if target.format else writer).toTable(target.table)


def write_once(pipeline: Pipeline, flow: Flow, bootstrap: str) -> None:
    sink = flow.sink
    if sink.mode in (OutputMode.UPDATE, OutputMode.COMPLETE):
        raise _invalid(pipeline, sink, f"mode {sink.mode} needs a stream, but it reads none")
    try:
        if isinstance(sink.target, BranchTargets | LakeTarget):
            write_once_to_all(flow.rows, sink, bootstrap)
        else:
            _save(flow.rows.write.mode(sink.mode or OutputMode.APPEND), sink, bootstrap)
    except (*SPARK_ERRORS, SparkSourceError) as error:
        message = f"{pipeline.file}:{sink.line}: {sink.name}: {explain(str(error))}"
        raise QueryFailed(message) from None


def _save(writer: "DataFrameWriter", sink: Sink, bootstrap: str) -> None:
    target = sink.target
    assert not isinstance(target, BranchTargets | LakeTarget)
    if isinstance(target, TopicTarget):
        writer.format(FORMAT).options(**sink_options(target, sink, bootstrap)).save()
        return
    writer = writer.options(**values_of(sink.options))
    if isinstance(target, FormatTarget):
        writer.format(target.format).save()
        return
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)
    if isinstance(target, TableTarget):
        (writer.format(target.format) if target.format else writer).saveAsTable(target.table)
    else:
        writer.format(target.format).save(target.path)


def _invalid(pipeline: Pipeline, sink: Sink, message: str) -> PipelineInvalid:
    return PipelineInvalid(pipeline.file, [Problem(sink.line, f"sink {sink.name}: {message}")])
