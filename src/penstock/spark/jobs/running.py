"""Runs work on Spark while showing its progress, and stops it on request.

Independent of what the work is. Invariant: when `run_watched` returns or raises, no part of the
work is still running.
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
_POLL_S = 0.5
_GROUP = "spark.jobGroup.id"
_SUCCEEDED = "SUCCEEDED"


class JobProgress(NamedTuple):
    step: str
    tasks: int  # of the Spark jobs started so far
    done: int
    seconds: float
    records: int | None = None  # where they are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWatch:
    """How one run of a job is stopped and shows its progress."""

    stop: threading.Event  # set it to stop the job
    show: Callable[[JobProgress], None]  # called on the watcher's thread


def run_watched(
    spark: "SparkSession", step: str, watch: JobWatch, work: Callable[[], _Result]
) -> _Result:
    """Runs `work` and returns its result.

    It runs on this thread because Spark finds data sources through the thread's active session.
    """
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
        _check_stop(step, watch)  # a cancelled job fails too
        raise JobFailed(f"{step}: {explain(str(error))}") from error
    finally:
        watcher.end()
        context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type] # removes it


def _check_stop(step: str, watch: JobWatch) -> None:
    if watch.stop.is_set():
        raise JobStopped(f"stopped during: {step}")


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
        while not self._is_over.wait(_POLL_S):
            if self._watch.stop.is_set():
                self._context.cancelJobGroup(self.group)
            else:
                self._show_progress()

    def end(self) -> None:
        """Stops the thread and shows the final progress."""
        self._is_over.set()
        self.join()
        self._show_progress()

    def _show_progress(self) -> None:
        tasks, done = self._count_tasks()
        seconds = time.monotonic() - self._started_s
        self._watch.show(JobProgress(self._step, tasks, done, seconds))

    def _count_tasks(self) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        tasks = done = 0
        for job in tracker.getJobIdsForGroup(self.group):
            job_info = tracker.getJobInfo(job)
            for stage_id in job_info.stageIds if job_info is not None else ():
                stage_info = tracker.getStageInfo(stage_id)
                if job_info is not None and stage_info is not None:
                    done += stage_info.numCompletedTasks
                    # Tasks that a finished job has not run were skipped: an earlier job ran them.
                    is_over = job_info.status == _SUCCEEDED
                    tasks += stage_info.numCompletedTasks if is_over else stage_info.numTasks
        return tasks, done
