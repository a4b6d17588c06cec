"""Progress of a running pipeline on stderr: a live table on a terminal, otherwise lines. With
--json, an object per micro-batch on stdout.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.cli.connect import show_json
from penstock.cli.tables import show_table

if TYPE_CHECKING:
    from penstock.spark.pipeline.progress import PipelineProgress, QueryTotals

    Show = Callable[[PipelineProgress], None]

_LINE_EVERY_S = 1.0
_COLUMNS = ("sink", "batch", "rows", "written", "rows/s", "lag", "ms")


@contextmanager
def progress_display(*, as_json: bool) -> Iterator["Show"]:
    """Yields a function that shows a micro-batch."""
    if as_json:
        yield lambda progress: show_json(_batch_as_json(progress))
    elif sys.stderr.isatty():
        with _live_table() as show:
            yield show
    else:
        yield _Lines().show


def _batch_as_json(progress: "PipelineProgress") -> dict[str, Any]:
    behind = None if progress.behind is None else progress.behind._asdict()
    return {**progress._asdict(), "violations": dict(progress.violations), "behind": behind}


class _Lines:
    """Prints at most one line per second for each sink, because batches can be short."""

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}
        self._since: dict[str, QueryTotals] = {}

    def show(self, progress: "PipelineProgress") -> None:
        totals = self._since.get(progress.sink, _no_totals()).after(progress)
        now_s = time.monotonic()
        if now_s - self._last_s.get(progress.sink, -_LINE_EVERY_S) < _LINE_EVERY_S:
            self._since[progress.sink] = totals
            return
        self._last_s[progress.sink] = now_s
        self._since.pop(progress.sink, None)
        print(_line(progress, totals), file=sys.stderr, flush=True)


def _line(progress: "PipelineProgress", totals: "QueryTotals") -> str:
    written = "" if totals.written is None else f", {totals.written:,} written"
    lag = "" if progress.lag is None else f", lag {progress.lag:,}"
    wrong = sum(totals.violations.values())
    violations = f", {wrong:,} violations" if wrong else ""
    return (
        f"{progress.sink}: batch {progress.batch}, {totals.rows:,} rows{written}, "
        f"{progress.rows_per_s:,.0f} rows/s{lag}{violations}"
    )


def _no_totals() -> "QueryTotals":
    from penstock.spark.pipeline.progress import QueryTotals

    return QueryTotals()


@contextmanager
def _live_table() -> Iterator["Show"]:
    from rich.console import Console
    from rich.live import Live

    latest: dict[str, PipelineProgress] = {}
    totals: dict[str, QueryTotals] = {}
    with Live(console=Console(stderr=True), transient=True, redirect_stdout=False) as live:

        def show(progress: "PipelineProgress") -> None:
            latest[progress.sink] = progress
            totals[progress.sink] = totals.get(progress.sink, _no_totals()).after(progress)
            live.update(_drawn(latest, totals), refresh=True)

        yield show


def _drawn(latest: "Mapping[str, PipelineProgress]", totals: "Mapping[str, QueryTotals]") -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "sink" else "right")
    for sink, progress in sorted(latest.items()):
        counts = (_figure(totals[sink].rows), _figure(totals[sink].written))
        figures = (f"{progress.rows_per_s:,.0f}", _figure(progress.lag), f"{progress.batch_ms:,}")
        table.add_row(escape(sink), str(progress.batch), *counts, *figures)
    return table


def _figure(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def note(text: str) -> None:
    """Prints a message about another event."""
    print(text, file=sys.stderr, flush=True)


def show_totals(totals: "Mapping[str, QueryTotals]", *, as_json: bool) -> None:
    if as_json:
        show_json({"sinks": {sink: _as_json(total) for sink, total in totals.items()}})
        return
    rows = [
        [sink, t.batches, t.rows, t.written, round(t.rows_per_s), t.lag]
        for sink, t in totals.items()
    ]
    if rows:
        show_table(("sink", "batches", "rows", "written", "rows/s", "lag"), rows)
    violations = [
        [sink, name, count] for sink, t in totals.items() for name, count in t.violations.items()
    ]
    if violations:
        show_table(("sink", "expectation", "rows that do not meet it"), violations)


def _as_json(totals: "QueryTotals") -> dict[str, Any]:
    return {
        "batches": totals.batches,
        "rows": totals.rows,
        "written": totals.written,
        "rows_per_s": round(totals.rows_per_s, 1),
        "lag": totals.lag,
        "violations": dict(totals.violations),
    }
