"""What the sink's writers have in common on the driver: they note each planned micro-batch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.spark.sink.exactly_once.driver_keeper import new_plan, note_ended, note_planned
from penstock.spark.sink.exactly_once.planned_batches import QueryRun
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.task_report import TaskReport


class PlannedWriter:
    """Spark creates a writer in each process that needs one, but pickles it only where it plans a
    micro-batch, for the tasks. That is the one call on the driver before they run."""

    def __init__(self, options: SinkOptions, *, is_micro_batch: bool) -> None:
        self._options = options
        self._plan = new_plan() if options.is_exactly_once and is_micro_batch else None
        self._is_noted = False

    def __getstate__(self) -> dict[str, Any]:
        if self._plan is not None and not self._is_noted:
            self._is_noted = True  # it is pickled several times
            note_planned(self._options, self._plan)
        return self.__dict__


@contextmanager
def noting_end(options: SinkOptions, reports: Sequence[TaskReport]) -> Iterator[None]:
    """While a batch with these reports is committed or aborted."""
    try:
        yield
    finally:
        plan = next((report.plan for report in reports), None)
        if plan is not None:
            note_ended(options, plan, QueryRun(reports[0].get_query(), reports[0].run))
