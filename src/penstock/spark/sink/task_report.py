"""The commit message of a sink task to the driver: which task attempt wrote what."""

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
_BATCH_ID = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"  # a streaming query sets it to the id of its run
# Spark checks every 2 s whether a task was killed, and kills its Python worker 2 s later
# (spark.python.task.killTimeout).
_KILLED_WITHIN_S = 5.0


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """Query, batch, task and attempt identify one task attempt across all runs of a query."""

    query_id: str | None  # None: not a streaming query
    batch_id: int | None
    task: int
    attempt: int
    rows: int
    end_offsets: dict[TopicPartition, int]
    prepared: PreparedTransaction | None = None  # left undecided; only with exactly-once
    run: str | None = None  # of the query
    plan: str | None = None  # the driver's name for the micro-batch

    def get_query(self) -> str:
        assert self.query_id is not None, "reported by a task of a streaming query"
        return self.query_id

    def get_batch(self) -> int:
        assert self.batch_id is not None, "reported by a task of a streaming query"
        return self.batch_id


def report_task(
    written: WriteResult,
    prepared: PreparedTransaction | None = None,
    plan: str | None = None,
) -> TaskReport:
    context = _context()
    return TaskReport(
        query_id=context.getLocalProperty(_QUERY),
        batch_id=_find_batch_id(context),
        task=context.partitionId(),
        attempt=context.attemptNumber(),
        rows=written.rows,
        end_offsets=written.end_offsets,
        prepared=prepared,
        run=context.getLocalProperty(_RUN),
        plan=plan,
    )


def task_reports(messages: Iterable[WriterCommitMessage | None]) -> list[TaskReport]:
    """The reports of the tasks that completed."""
    return [message for message in messages if isinstance(message, TaskReport)]


def stragglers_end_within_s(messages: Collection[WriterCommitMessage | None]) -> float:
    """How long other tasks of a failed job may still write: Spark kills them without waiting."""
    unreported = len(messages) - len(task_reports(messages))
    return _KILLED_WITHIN_S if unreported > 1 else 0


def streaming_micro_batch() -> MicroBatchId:
    """The micro-batch that this task of a streaming query writes."""
    context = _context()
    query, batch_id = context.getLocalProperty(_QUERY), _find_batch_id(context)
    if query is None or batch_id is None:
        raise BadOption(
            "oncePerMicroBatch", "true", "this write is not inside foreachBatch: remove this option"
        )
    return MicroBatchId(query, context.getLocalProperty(_RUN), batch_id)


def _find_batch_id(context: TaskContext) -> int | None:
    batch_id = context.getLocalProperty(_BATCH_ID)
    return None if batch_id is None else int(batch_id)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "runs in a Spark task"
    return context
