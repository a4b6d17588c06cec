"""Durations, and progress parsed from Spark's JSON."""

import pytest

from penstock.spark.pipeline.durations import find_span
from penstock.spark.pipeline.progress import QueryTotals, read_progress


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("10 seconds", "10 seconds"),
        ("10s", "10 seconds"),
        ("1 Minute", "1 minutes"),
        ("500ms", "500 milliseconds"),
        ("2 h", "2 hours"),
        ("1d", "1 days"),
        ("10", None),
        ("soon", None),
        ("-1 s", None),
        ("1 fortnight", None),
    ],
)
def test_duration_becomes_a_spark_interval(text: str, span: str | None) -> None:
    assert find_span(text) == span


COUNTED = {"written": {"rows": 7}}


def progress_json(batch: int, *, end: object, latest: object, rows: int = 300) -> dict[str, object]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 200},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }


def test_lag_counts_unread_records() -> None:
    end = {"clicks": {"0": 10, "1": 5}, "@start": {"clicks": {"0": 0}}}
    progress = read_progress("out", progress_json(4, end=end, latest={"clicks": {"0": 12, "1": 8}}))
    assert (progress.batch, progress.rows, progress.rows_per_s) == (4, 300, 1500.0)
    assert progress.lag == 5


def test_offsets_may_be_json_text_and_other_sources_have_no_lag() -> None:
    as_text = progress_json(1, end='{"clicks": {"0": 1}}', latest='{"clicks": {"0": 2}}')
    assert read_progress("out", as_text).lag == 1
    for end, latest in (({"logOffset": 3}, {"logOffset": 4}), (None, None), ("x", "y"), (3, 4)):
        assert read_progress("out", progress_json(1, end=end, latest=latest)).lag is None


def test_totals_sum_batches() -> None:
    totals = QueryTotals()
    for batch in (0, 1):
        offsets = {"clicks": {"0": batch}}
        totals = totals.after(
            read_progress("out", progress_json(batch, end=offsets, latest=offsets))
        )
    assert totals == QueryTotals(batches=2, rows=600, busy_ms=400, lag=0, last_batch=1)
    assert totals.rows_per_s == 1500.0


def test_rows_of_spark_connect_are_those_of_its_sources() -> None:
    sources = [{"numInputRows": 7}, {"numInputRows": 5}]
    assert read_progress("out", {"batchId": 0, "sources": sources}).rows == 12


def test_written_rows_are_counted_where_spark_has_counted_them() -> None:
    counted = {**progress_json(0, end=None, latest=None), "observedMetrics": COUNTED}
    totals = QueryTotals()
    assert totals.written is None
    for batch in (counted, progress_json(1, end=None, latest=None), counted):
        totals = totals.after(read_progress("out", batch))
    assert totals.written == 14


def test_partitions_behind_are_summed_up_over_all_sources() -> None:
    report = progress_json(
        4, end={"clicks": {"0": 10, "1": 5}}, latest={"clicks": {"0": 12, "1": 14}}
    )
    other = {"endOffset": {"clicks": {"0": 8}}, "latestOffset": {"clicks": {"0": 9}}}
    files = {"endOffset": {"logOffset": 3}, "latestOffset": {"logOffset": 4}}
    sources = report["sources"]
    assert isinstance(sources, list)
    behind = read_progress("out", {**report, "sources": [*sources, other, files]}).behind
    assert behind is not None
    assert (behind.least, behind.most, behind.average, behind.total) == (1, 9, 4.0, 12)
    assert read_progress("out", {"batchId": 0, "sources": [files]}).behind is None


def test_violations_are_summed_up_by_expectation() -> None:
    observed = {"written": {"rows": 7}, "violations of clicks": {"positive": 2, "user": 0}}
    batch = {**progress_json(0, end=None, latest=None), "observedMetrics": observed}
    more = {**batch, "observedMetrics": {"violations of slow": {"odd": 1}}}
    totals = QueryTotals()
    for report in (batch, batch, more):
        totals = totals.after(read_progress("out", report))
    assert totals.violations == {"clicks.positive": 4, "clicks.user": 0, "slow.odd": 1}
