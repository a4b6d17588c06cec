"""What a task of the sink tells the driver: who wrote, and what."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from penstock.model.ids import TopicPartition
from penstock.spark.errors import BadOption
from penstock.spark.sink.exactly_once.prepared_write import PreparedTransaction
from penstock.spark.sink.exactly_once.transactional_ids import MicroBatchId
from penstock.spark.sink.write_task import WriteResult

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"  # a streaming query sets it to the id of its run
# Spark looks every 2 s whether a task is to end, and kills its Python worker 2 s later
# (spark.python.task.killTimeout).
_KILLED_WITHIN_S = 5.0


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """Query, batch, task and attempt name one attempt of one task, in all runs of a query."""

    query_id: str | None  # None: no streaming query
    batch_id: int | None
    task: int
    attempt: int
    rows: int
    end_offsets: dict[TopicPartition, int]
    prepared: PreparedTransaction | None = None  # what it left undecided; only with exactly-once

    def get_query(self) -> str:
        assert self.query_id is not None, "reported by a task of a streaming query"
        return self.query_id

    def get_batch(self) -> int:
        assert self.batch_id is not None, "reported by a task of a streaming query"
        return self.batch_id


def report_task(written: WriteResult, prepared: PreparedTransaction | None = None) -> TaskReport:
    context = _context()
    return TaskReport(
        query_id=context.getLocalProperty(_QUERY),
        batch_id=_find_batch(context),
        task=context.partitionId(),
        attempt=context.attemptNumber(),
        rows=written.rows,
        end_offsets=written.end_offsets,
        prepared=prepared,
    )


def task_reports(messages: Iterable[WriterCommitMessage | None]) -> list[TaskReport]:
    """Of the tasks that were done."""
    return [each for each in messages if isinstance(each, TaskReport)]


def stragglers_end_within_s(messages: Collection[WriterCommitMessage | None]) -> float:
    """Of a job that failed: how long other tasks than the one that did it may still write. Spark
    tells them to end, and does not wait for it."""
    unreported = len(messages) - len(task_reports(messages))
    return _KILLED_WITHIN_S if unreported > 1 else 0


def streaming_micro_batch() -> MicroBatchId:
    """What the task of a streaming query writes for."""
    context = _context()
    query, batch = context.getLocalProperty(_QUERY), _find_batch(context)
    if query is None or batch is None:
        raise BadOption(
            "oncePerMicroBatch", "true", "this write is not inside of foreachBatch: leave it out"
        )
    return MicroBatchId(query, context.getLocalProperty(_RUN), batch)


def _find_batch(context: TaskContext) -> int | None:
    batch_id = context.getLocalProperty(_BATCH)
    return None if batch_id is None else int(batch_id)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "runs in a task of Spark's"
    return context
