"""Work on Spark that is watched while it runs, and can be stopped.

Knows nothing of what the work is. Invariant: when `run_watched` returns or raises, nothing of the
work runs any more.
"""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.spark.jobs.failures import JobFailed, JobStopped
from penstock.spark.session.spark_messages import explain

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")
_LOOK_EVERY_S = 0.5
_GROUP = "spark.jobGroup.id"
_SUCCEEDED = "SUCCEEDED"


class JobProgress(NamedTuple):
    step: str
    tasks: int  # known so far
    done: int
    seconds: float
    records: int | None = None  # where they can be counted


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWatch:
    """How a job is run this time."""

    stop: threading.Event  # whoever sets it ends the job
    show: Callable[[JobProgress], None]  # called on a thread of its own


def run_watched(
    spark: "SparkSession", step: str, watch: JobWatch, work: Callable[[], _Result]
) -> _Result:
    """The result of `work`, which runs Spark's actions on this thread: Spark finds data sources
    through the session that is active on it."""
    context = spark.sparkContext
    watcher = _Watcher(context, step, watch)
    context.setJobGroup(watcher.group, step)
    watcher.start()
    try:
        _check_stop(step, watch)
        result = work()
        _check_stop(step, watch)
        return result
    except JobFailed:
        raise
    except Exception as error:
        _check_stop(step, watch)  # it was cancelled
        raise JobFailed(f"{step}: {explain(str(error))}") from error
    finally:
        watcher.end()
        context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type] # removes it


def _check_stop(step: str, watch: JobWatch) -> None:
    if watch.stop.is_set():
        raise JobStopped(f"stopped before the end of: {step}")


class _Watcher(threading.Thread):
    def __init__(self, context: "SparkContext", step: str, watch: JobWatch) -> None:
        super().__init__(name=f"penstock-job {step}", daemon=True)
        self.group = f"penstock-{uuid.uuid4()}"
        self._context = context
        self._step = step
        self._watch = watch
        self._started_s = time.monotonic()
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY_S):
            if self._watch.stop.is_set():
                self._context.cancelJobGroup(self.group)
            else:
                self._look()

    def end(self) -> None:
        """Tells once more how far it came."""
        self._is_over.set()
        self.join()
        self._look()

    def _look(self) -> None:
        tasks, done = self._count_tasks()
        seconds = time.monotonic() - self._started_s
        self._watch.show(JobProgress(self._step, tasks, done, seconds))

    def _count_tasks(self) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        tasks = done = 0
        for job in tracker.getJobIdsForGroup(self.group):
            found = tracker.getJobInfo(job)
            for stage in found.stageIds if found is not None else ():
                told = tracker.getStageInfo(stage)
                if found is not None and told is not None:
                    done += told.numCompletedTasks
                    # What a job that is over has not done was done by another one before it.
                    is_over = found.status == _SUCCEEDED
                    tasks += told.numCompletedTasks if is_over else told.numTasks
        return tasks, done
