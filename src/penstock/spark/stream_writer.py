"""`df.writeStream.format("penstock")`: the micro-batches of a query into topics, through Arrow."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.sink_columns import check_columns
from penstock.spark.sink_options import parse_sink_options
from penstock.spark.task_report import TaskReport, report_task
from penstock.spark.write_task import write_rows


class PenstockStreamWriter(DataSourceStreamArrowWriter):
    """Made in two processes, so that making it must change nothing; pickled to every task.

    At-least-once: a micro-batch that is run again writes its rows again. In the output mode
    "complete" each micro-batch appends the whole result.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = parse_sink_options(options)
        self._columns = check_columns(schema, self._options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        return report_task(write_rows(iterator, self._options, self._columns))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every task's rows were acknowledged before it reported."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was written stays; the micro-batch is run again."""
