"""`df.write.format("penstock")`: writes a DataFrame to topics, through Arrow."""

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
from penstock.spark.sink.planned_writer import PlannedWriter, noting_end
from penstock.spark.sink.task_report import (
    TaskReport,
    report_task,
    stragglers_end_within_s,
    streaming_micro_batch,
    task_reports,
)
from penstock.spark.sink.write_task import write_rows

_BATCH_ID = 0  # the only one


class PenstockBatchWriter(PlannedWriter, DataSourceArrowWriter):
    """Created and checked on the driver, pickled to every task and to the process that commits.

    Exactly-once: all rows are written once, or none is; with `oncePerMicroBatch`, a micro-batch
    that is rerun counts once. At-least-once: rows of a retried task may be there twice, and those
    of a failed job stay.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkSourceError(
                'mode "overwrite": a topic is only ever appended to; write with .mode("append")'
            )
        parsed = parse_sink_options(options)
        super().__init__(parsed, is_micro_batch=parsed.is_once_per_micro_batch)
        self._columns = check_columns(schema, self._options.topic)
        self._query = new_batch_query()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        if not self._options.is_exactly_once:
            return report_task(write_rows(iterator, self._options, self._columns))
        micro_batch, plan = self._micro_batch(), self._plan
        written = write_prepared(iterator, self._options, self._columns, micro_batch, plan)
        return report_task(*written, plan)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task reports after its rows are acknowledged."""
        reports = task_reports(messages)
        if self._options.is_exactly_once and reports:
            prepared = (report.prepared for report in reports)
            with noting_end(self._options, reports):
                commit_batch(self._options, *self._batch_of(reports), prepared)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """With at-least-once the rows stay, because nothing can be removed from a log."""
        reports = task_reports(messages)
        if self._options.is_exactly_once and (reports or not self._options.is_once_per_micro_batch):
            batch, watch_s = self._batch_of(reports), stragglers_end_within_s(messages)
            with noting_end(self._options, reports):
                abort_batch(self._options, *batch, watch_s=watch_s)

    def _micro_batch(self) -> MicroBatchId:
        if self._options.is_once_per_micro_batch:
            return streaming_micro_batch()
        return MicroBatchId(self._query, None, _BATCH_ID)

    def _batch_of(self, reports: list[TaskReport]) -> tuple[str, int]:
        if self._options.is_once_per_micro_batch:
            return reports[0].get_query(), reports[0].get_batch()
        return self._query, _BATCH_ID
