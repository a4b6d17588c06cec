"""`df.writeStream.format("penstock")`: writes micro-batches to topics, through Arrow."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.sink.columns import check_columns
from penstock.spark.sink.exactly_once.batch_commit import abort_batch, commit_batch
from penstock.spark.sink.exactly_once.fail_points import FailPoint, halt_at
from penstock.spark.sink.exactly_once.prepared_write import write_prepared
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


class PenstockStreamWriter(PlannedWriter, DataSourceStreamArrowWriter):
    """Created in several processes, so the constructor has no side effects; pickled to every task.

    Exactly-once: a micro-batch counts once, however often it is run. At-least-once: a rerun writes
    the rows again. In the output mode "complete" each micro-batch appends the whole result.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(parse_sink_options(options), is_micro_batch=True)
        self._columns = check_columns(schema, self._options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        if not self._options.is_exactly_once:
            return report_task(write_rows(iterator, self._options, self._columns))
        micro_batch, plan = streaming_micro_batch(), self._plan
        written = write_prepared(iterator, self._options, self._columns, micro_batch, plan)
        return report_task(*written, plan)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every task reports after its rows are acknowledged."""
        if not self._options.is_exactly_once:
            halt_at(FailPoint.COMMIT_BEGUN, batchId)
        elif reports := task_reports(messages):
            query = reports[0].get_query()
            with noting_end(self._options, reports):
                commit_batch(self._options, query, batchId, (report.prepared for report in reports))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Spark reruns the micro-batch. If no task has reported, the query is unknown here, and its
        next start ends what was left."""
        reports = task_reports(messages)
        if self._options.is_exactly_once and reports:
            query = reports[0].get_query()
            watch_s = stragglers_end_within_s(messages)
            with noting_end(self._options, reports):
                abort_batch(self._options, query, batchId, watch_s=watch_s)
