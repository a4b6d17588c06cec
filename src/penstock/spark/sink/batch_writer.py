"""`df.write.format("penstock")`: a batch of rows into topics, through Arrow."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.columns import check_columns
from penstock.spark.sink.exactly_once.batch_commit import abort_batch, commit_batch
from penstock.spark.sink.exactly_once.prepared_write import write_prepared
from penstock.spark.sink.exactly_once.transactional_ids import MicroBatchId, new_batch_query
from penstock.spark.sink.options import parse_sink_options
from penstock.spark.sink.task_report import (
    TaskReport,
    report_task,
    stragglers_end_within_s,
    streaming_micro_batch,
    task_reports,
)
from penstock.spark.sink.write_task import write_rows

_BATCH = 0  # the only one


class PenstockBatchWriter(DataSourceArrowWriter):
    """Made and checked on the driver, pickled to every task and to the process that commits.

    Exactly-once: all rows are there once, or none is; with `oncePerMicroBatch`, once for a
    micro-batch that is run again. At-least-once: rows of a task that failed and was tried again may
    be there twice, and those of a failed job stay.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkSourceError(
                'mode "overwrite": a topic is only ever appended to; write with .mode("append")'
            )
        self._options = parse_sink_options(options)
        self._columns = check_columns(schema, self._options.topic)
        self._name = new_batch_query()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        if not self._options.is_exactly_once:
            return report_task(write_rows(iterator, self._options, self._columns))
        name = self._name_write()
        return report_task(*write_prepared(iterator, self._options, self._columns, name))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task's rows were acknowledged before it reported."""
        reports = task_reports(messages)
        if self._options.is_exactly_once and reports:
            prepared = (each.prepared for each in reports)
            commit_batch(self._options, *self._batch_of(reports), prepared)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """At-least-once, what was written stays: nothing can be taken out of a log."""
        reports = task_reports(messages)
        if self._options.is_exactly_once and (reports or not self._options.is_of_micro_batch):
            batch = self._batch_of(reports)
            abort_batch(self._options, *batch, watch_s=stragglers_end_within_s(messages))

    def _name_write(self) -> MicroBatchId:
        if self._options.is_of_micro_batch:
            return streaming_micro_batch()
        return MicroBatchId(self._name, None, _BATCH)

    def _batch_of(self, reports: list[TaskReport]) -> tuple[str, int]:
        if self._options.is_of_micro_batch:
            return reports[0].get_query(), reports[0].get_batch()
        return self._name, _BATCH
