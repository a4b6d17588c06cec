"""`df.write.format("penstock")`: a batch of rows into topics, through Arrow."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkSourceError
from penstock.spark.sink_columns import check_columns
from penstock.spark.sink_options import parse_sink_options
from penstock.spark.task_report import TaskReport, report_task
from penstock.spark.write_task import write_rows


class PenstockBatchWriter(DataSourceArrowWriter):
    """Made and checked on the driver, pickled to every task. At-least-once: rows of a task that
    failed and was tried again may be there twice, and those of a failed job stay."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkSourceError(
                'mode "overwrite": a topic is only ever appended to; write with .mode("append")'
            )
        self._options = parse_sink_options(options)
        self._columns = check_columns(schema, self._options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        return report_task(write_rows(iterator, self._options, self._columns))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task's rows were acknowledged before it reported."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays: nothing can be taken out of a log."""
