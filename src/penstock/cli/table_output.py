"""Output of `penstock table`: progress on stderr, results on stdout; with --json objects."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.connect import show_json
from penstock.cli.tables import show_table

if TYPE_CHECKING:
    from penstock.spark.tables.status import TableStatus
    from penstock.spark.tables.sync import SyncProgress


class SyncTotals(NamedTuple):
    commits: int = 0
    rows: int = 0
    dead_letters: int = 0
    busy_ms: int = 0
    lag: int = 0

    @property
    def rows_per_s(self) -> float:
        return self.rows * 1000 / self.busy_ms if self.busy_ms else 0.0


class Display:
    """Shows the progress of one run and sums it up."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.totals: dict[str, SyncTotals] = {}

    def show(self, progress: "SyncProgress") -> None:
        before = self.totals.get(progress.topic, SyncTotals())
        self.totals[progress.topic] = SyncTotals(
            before.commits + 1,
            before.rows + progress.rows,
            before.dead_letters + progress.bad,
            before.busy_ms + progress.batch_ms,
            progress.lag,
        )
        if self._as_json:
            show_json(progress._asdict())
            sys.stdout.flush()
        else:
            print(_line(progress), file=sys.stderr, flush=True)


def _line(progress: "SyncProgress") -> str:
    rate = progress.rows * 1000 / progress.batch_ms if progress.batch_ms else 0
    bad = f", {progress.bad:,} dead letters" if progress.bad else ""
    return (
        f"{progress.topic}: {progress.rows:,} records{bad}, {rate:,.0f} records/s, "
        f"lag {progress.lag:,}"
    )


def show_totals(totals: Mapping[str, SyncTotals], *, as_json: bool) -> None:
    if as_json:
        show_json(
            {"tables": {topic: query_totals._asdict() for topic, query_totals in totals.items()}}
        )
        return
    rows = [
        [
            topic,
            query_totals.commits,
            query_totals.rows,
            query_totals.dead_letters,
            round(query_totals.rows_per_s),
            query_totals.lag,
        ]
        for topic, query_totals in totals.items()
    ]
    if rows:
        show_table(("topic", "commits", "records", "dead letters", "records/s", "lag"), rows)


def show_statuses(statuses: "Sequence[TableStatus]", *, as_json: bool) -> None:
    if as_json:
        for status in statuses:
            show_json(_as_json(status))
        return
    rows = [
        [t.topic, t.format, t.rows, t.files, t.size_bytes, t.dead_letters, t.lag] for t in statuses
    ]
    show_table(("topic", "format", "rows", "files", "bytes", "dead letters", "lag"), rows)


def _as_json(status: "TableStatus") -> dict[str, object]:
    partitions = [
        {
            "partition": partition.partition,
            "start": partition.held.start,
            "end": partition.held.end,
            "lag": partition.lag,
        }
        for partition in status.partitions
    ]
    return {**status._asdict(), "partitions": partitions}
