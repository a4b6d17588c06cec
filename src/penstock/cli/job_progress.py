"""Progress of a job on stderr: a bar on a terminal, otherwise a line every two seconds. With
--json, objects on stdout.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.cli.connect import show_json

if TYPE_CHECKING:
    from penstock.spark.jobs.running import JobProgress

    Show = Callable[[JobProgress], None]

_LINE_EVERY_S = 2.0


@contextmanager
def job_progress(*, as_json: bool) -> Iterator["Show"]:
    """Yields a function that shows progress; it may be called twice a second."""
    if as_json:
        yield _RateLimited(
            lambda progress: show_json({"type": "progress", **progress._asdict()})
        ).show
    elif sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _RateLimited(lambda progress: print(line(progress), file=sys.stderr, flush=True)).show


class _RateLimited:
    """Shows the first progress of a step at once, then every two seconds."""

    def __init__(self, show: "Show") -> None:
        self._show = show
        self._step = ""
        self._shown_s = 0.0

    def show(self, progress: "JobProgress") -> None:
        if progress.step == self._step and progress.seconds - self._shown_s < _LINE_EVERY_S:
            return
        self._step, self._shown_s = progress.step, progress.seconds
        self._show(progress)


def line(progress: "JobProgress") -> str:
    parts = [f"{progress.step}: {progress.done:,} of {progress.tasks:,} tasks"]
    if progress.records is not None:
        parts.append(f"{progress.records:,} records")
    return f"{', '.join(parts)}, {progress.seconds:.0f} s"


@contextmanager
def _bar() -> Iterator["Show"]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("starting")

        def show(progress: "JobProgress") -> None:
            counted = "" if progress.records is None else f" ({progress.records:,} records)"
            drawn.update(
                task,
                description=f"{progress.step}{counted}",
                total=progress.tasks or None,
                completed=progress.done,
            )

        yield show
