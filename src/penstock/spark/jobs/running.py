"""Work on Spark that is watched while it runs, and can be stopped.

Knows nothing of what the work is. Invariant: when `run_watched` returns or raises, nothing of the
work runs any more.
"""

import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from penstock.model.values import dataclass
from penstock.spark.jobs.failures import JobFailed, JobStopped
from penstock.spark.pipeline.spark_messages import explain

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")
_LOOK_EVERY_S = 0.5


class Progress(NamedTuple):
    step: str
    tasks: int  # known so far
    done: int
    seconds: float
    records: int | None = None  # where they can be counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How a job is run this time."""

    stop: threading.Event  # whoever sets it ends the job
    show: Callable[[Progress], None]


def run_watched(
    spark: "SparkSession", step: str, watch: Watch, work: Callable[[], _Result]
) -> _Result:
    """The result of `work`, which runs Spark's actions on a thread of its own."""
    started_s = time.monotonic()
    context = spark.sparkContext
    thread = _Work(context, step, work)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_EVERY_S)
            if watch.stop.is_set():
                raise JobStopped(f"stopped before the end of: {step}")
            tasks, done = _count_tasks(context.statusTracker(), thread.group)
            watch.show(Progress(step, tasks, done, time.monotonic() - started_s))
    finally:
        while thread.is_alive():  # a job may just be about to start
            context.cancelJobGroup(thread.group)
            thread.join(_LOOK_EVERY_S)
    return thread.outcome()


class _Work(threading.Thread, Generic[_Result]):
    def __init__(self, context: "SparkContext", step: str, work: Callable[[], _Result]) -> None:
        super().__init__(name=f"penstock-job {step}", daemon=True)
        self.group = f"penstock-{uuid.uuid4()}"
        self._context = context
        self._step = step
        self._work = work
        self._results: list[_Result] = []
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._context.setJobGroup(self.group, self._step)
            self._results.append(self._work())
        except Exception as error:  # told to whoever waits
            self._error = error

    def outcome(self) -> _Result:
        if self._error is None:
            return self._results[0]
        if isinstance(self._error, JobFailed):
            raise self._error
        raise JobFailed(f"{self._step}: {explain(str(self._error))}") from self._error


def _count_tasks(tracker: "StatusTracker", group: str) -> tuple[int, int]:
    tasks = done = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found is not None else ():
            told = tracker.getStageInfo(stage)
            if told is not None:
                tasks += told.numTasks
                done += told.numCompletedTasks
    return tasks, done
