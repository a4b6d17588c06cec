"""`penstock job`: arguments refused before Spark starts, and the output of results."""

import json
from pathlib import Path

import pytest
from tests.unit.spark.jobs.log_samples import audited, batches
from tests.unit.spark.jobs.test_stats_summary import sample
from typer.testing import CliRunner

from penstock.cli.job_output import show_audit, show_replay, show_stats, write_plots
from penstock.cli.job_progress import job_progress, line
from penstock.cli.main import app
from penstock.spark.jobs.audit import AuditResult
from penstock.spark.jobs.replay import ReplayResult
from penstock.spark.jobs.running import JobProgress
from penstock.spark.jobs.stats import StatsResult


def command(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["job", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["audit", "t", "--start", "soon"], "--start 'soon': write an offset"),
        (["audit", "t", "--partitions", "x"], "--partitions 'x'"),
        (["audit", "t", "--identity", "colour"], "--identity 'colour'"),
        (["replay", "t", "u", "--function", "nothing"], "write MODULE:FUNCTION"),
        (["replay", "t", "u", "--isolation", "none"], "--isolation 'none'"),
        (["replay", "t", "u", "--compression", "rar"], "--compression 'rar'"),
        (["stats", "t", "--end", "soon"], "--end 'soon'"),
    ],
)
def test_invalid_arguments_exit_2(arguments: list[str], expected: str) -> None:
    status, out, errors = command(*arguments)
    assert (status, out) == (2, "")
    assert expected in errors


@pytest.mark.parametrize("verb", [["audit", "t"], ["replay", "t", "u"], ["stats", "t"]])
def test_unreachable_cluster_is_reported_before_spark_starts(verb: list[str]) -> None:
    status, out, errors = command(*verb, "--bootstrap", "127.0.0.1:1")
    assert (status, out) == (1, "")
    assert "is the broker running?" in errors
    assert "Spark" not in errors


def faulty() -> AuditResult:
    log = batches(3)
    log[1][-1] ^= 1
    verdict = audited(log, 30)
    return AuditResult(totals=verdict.totals, findings=verdict.findings, omitted=2, seconds=0.5)


def test_audit_prints_each_problem_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    show_audit(faulty(), as_json=False)
    first, more, head, row, last = capsys.readouterr().out.splitlines()
    assert first.startswith("PROBLEM [crc] t-0 offset 10 to 19: the CRC of the batch's ")
    assert more == "... and 2 more problems of these kinds"
    assert head.split()[:4] == ["partition", "start", "end", "records"]
    assert row.split() == ["t-0", "0", "30", "20", "3", "0", "0", "1"]
    assert last == "NOT CLEAN: 3 problems; 20 records in 0.5 s (40 records/s)"


def test_audit_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_audit(faulty(), as_json=True)
    problem, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (problem["type"], problem["kind"]) == ("problem", "crc")
    assert (problem["topic"], problem["partition"], problem["offset"]) == ("t", 0, 10)
    assert (summary["type"], summary["problems"], summary["records_per_s"]) == ("summary", 3, 40.0)
    assert summary["partitions"][0]["records"] == 20


def test_clean_audit_prints_clean(capsys: pytest.CaptureFixture[str]) -> None:
    totals = audited(batches(3), 30).totals
    show_audit(AuditResult(totals=totals, findings=[], omitted=0, seconds=1), as_json=False)
    assert capsys.readouterr().out.endswith("clean; 30 records in 1.0 s (30 records/s)\n")


def test_replay_prints_what_it_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    result = ReplayResult(offsets=10, written=4, seconds=2)
    show_replay(result, "u", as_json=False)
    show_replay(result, "u", as_json=True)
    plain, as_json = capsys.readouterr().out.splitlines()
    assert plain == "4 records in 2.0 s (2 records/s) written to u, of 10 offsets"
    assert json.loads(as_json)["written"] == 4


def test_stats_print_tables_json_and_plots(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result = StatsResult(topics=[sample()], seconds=2)
    show_stats(result, as_json=False)
    text = capsys.readouterr().out
    assert text.startswith("t: 40 records, 480 bytes of keys and values, 3 keys\n")
    assert "skew: the largest partition has 1.50 times an even share" in text
    assert "62.5%" in text
    show_stats(result, as_json=True)
    topic, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [partition["records"] for partition in topic["partitions"]] == [30, 10]
    assert topic["top_keys"][0] == {"key": "<a&b>", "records": 25, "partitions": 1}
    assert summary == {"type": "summary", "records": 40, "seconds": 2, "records_per_s": 20.0}
    written = sorted(write_plots(result, tmp_path / "plots"))
    assert [path.name for path in written][:2] == ["t-keys.svg", "t-partitions.svg"]
    assert all(path.read_text().startswith("<svg ") for path in written)


def test_progress_lines_are_rate_limited(capsys: pytest.CaptureFixture[str]) -> None:
    with job_progress(as_json=False) as show:
        for seconds in (0.5, 1.0, 2.0, 2.6):
            show(JobProgress("check batches", 40, int(seconds * 10), seconds))
        show(JobProgress("compare records", 40, 0, 0.5))
    assert capsys.readouterr().err.splitlines() == [
        "check batches: 5 of 40 tasks, 0 s",
        "check batches: 26 of 40 tasks, 3 s",
        "compare records: 0 of 40 tasks, 0 s",
    ]
    with job_progress(as_json=True) as show:
        show(JobProgress("copy records", 1, 0, 1.0, records=1_234))
    progress = json.loads(capsys.readouterr().out)
    assert (progress["type"], progress["records"]) == ("progress", 1_234)
    assert line(JobProgress("copy", 1, 0, 1.0, 1_234)) == "copy: 0 of 1 tasks, 1,234 records, 1 s"
