"""Progress of a running pipeline, on a terminal, as lines and as JSON."""

import contextlib
import json
import pty
import sys
from collections.abc import Iterator

import pytest

from penstock.cli.pipeline_progress import progress_display, show_totals
from penstock.spark.pipeline.progress import PipelineProgress, QueryTotals

FIRST = PipelineProgress(sink="out", batch=0, rows=1000, rows_per_s=2000.0, batch_ms=500, lag=1234)
WRONG = {"orders.paid": 3}
TOTALS = {
    "out": QueryTotals(
        batches=2,
        rows=2000,
        busy_ms=1000,
        lag=0,
        last_batch=1,
        written=1990,
        violations=WRONG,
    )
}


def test_lines_are_limited_to_one_per_second_and_sink(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display(as_json=False) as show:
        show(FIRST)
        show(FIRST._replace(batch=1))
        show(FIRST._replace(sink="other", lag=None, written=900))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "out: batch 0, 1,000 rows, 2,000 rows/s, lag 1,234",
        "other: batch 0, 1,000 rows, 900 written, 2,000 rows/s",
    ]


def test_json_has_an_object_per_batch(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display(as_json=True) as show:
        show(FIRST)
        show(FIRST._replace(batch=1))
    show_totals(TOTALS, as_json=True)
    first, second, totals = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {**FIRST._asdict(), "violations": {}}
    assert second["batch"] == 1
    assert totals == {
        "sinks": {
            "out": {
                "batches": 2,
                "rows": 2000,
                "written": 1990,
                "rows_per_s": 2000.0,
                "lag": 0,
                "violations": WRONG,
            }
        }
    }


def test_terminal_shows_a_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pty.openpty()
    with open(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with progress_display(as_json=False) as show:
            show(FIRST)
            show(FIRST._replace(batch=1, lag=7))
    shown = "".join(_read_all(reader))
    assert "rows/s" in shown
    assert "2,000" in shown  # rows of both batches


def _read_all(reader: int) -> Iterator[str]:
    """Everything written to the terminal; reading fails once its other side is closed."""
    with open(reader, errors="replace") as terminal, contextlib.suppress(OSError):
        yield from terminal


def test_totals_are_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_totals(TOTALS, as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["sink", "batches", "rows", "written", "rows/s", "lag"],
        ["out", "2", "2000", "1990", "2000", "0"],
        ["sink", "expectation", "rows", "that", "do", "not", "meet", "it"],
        ["out", "orders.paid", "3"],
    ]
