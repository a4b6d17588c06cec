"""What a task of the sink tells the driver: who wrote, and what."""

from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from penstock.model.ids import TopicPartition
from penstock.spark.write_task import Written

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """Query, batch, task and attempt name one attempt of one task, in all runs of a query."""

    query_id: str | None  # None: no streaming query
    batch_id: int | None
    task: int
    attempt: int
    rows: int
    end_offsets: dict[TopicPartition, int]


def report_task(written: Written) -> TaskReport:
    context = TaskContext.get()
    assert context is not None, "runs in a task of Spark's"
    batch_id = context.getLocalProperty(_BATCH)
    return TaskReport(
        query_id=context.getLocalProperty(_QUERY),
        batch_id=None if batch_id is None else int(batch_id),
        task=context.partitionId(),
        attempt=context.attemptNumber(),
        rows=written.rows,
        end_offsets=written.end_offsets,
    )
