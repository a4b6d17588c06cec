"""Results of jobs on stdout: lines and tables, or with --json one object per line."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.connect import fail, show_json
from penstock.cli.tables import show_table

if TYPE_CHECKING:
    from penstock.spark.jobs.audit import AuditResult
    from penstock.spark.jobs.replay import ReplayResult
    from penstock.spark.jobs.stats import StatsResult
    from penstock.spark.jobs.stats_summary import TopicStats

_KEY_CHARACTERS = 40


def show_audit(result: "AuditResult", *, as_json: bool) -> None:
    for finding in result.findings:
        kind = "problem" if finding.is_problem else "note"
        if as_json:
            show_json({"type": kind, **finding.as_json()})
        else:
            print(f"{kind.upper() if finding.is_problem else kind} [{finding.kind}] {finding}")
    if as_json:
        _show_audit_as_json(result)
        return
    if result.omitted:
        print(f"... and {result.omitted:,} more problems of these kinds")
    columns = ("partition", "start", "end", "records", "batches", "markers", "removed", "problems")
    show_table(
        columns,
        [
            [
                str(t.tp),
                t.start,
                t.end,
                t.records,
                t.batches,
                t.markers,
                t.removed,
                t.problems,
            ]
            for t in result.totals
        ],
    )
    print(f"{_verdict(result.problems)}; {_pace(result.records, result.seconds)}")


def _verdict(problems: int) -> str:
    if not problems:
        return "clean"
    return "NOT CLEAN: 1 problem" if problems == 1 else f"NOT CLEAN: {problems:,} problems"


def _show_audit_as_json(result: "AuditResult") -> None:
    show_json(
        {
            "type": "summary",
            "partitions": [partition.as_json() for partition in result.totals],
            "records": result.records,
            "problems": result.problems,
            "left_out": result.omitted,
            **_pace_as_json(result.records, result.seconds),
        }
    )


def show_replay(result: "ReplayResult", target: str, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "type": "summary",
                "topic": target,
                "offsets": result.offsets,
                "written": result.written,
                **_pace_as_json(result.written, result.seconds),
            }
        )
        return
    pace = _pace(result.written, result.seconds)
    print(f"{pace} written to {target}, of {result.offsets:,} offsets")


def show_stats(result: "StatsResult", *, as_json: bool) -> None:
    for topic in result.topics:
        if as_json:
            show_json({"type": "topic", **topic.as_json()})
        else:
            _show_topic(topic)
    records = sum(topic.records for topic in result.topics)
    if as_json:
        show_json({"type": "summary", "records": records, **_pace_as_json(records, result.seconds)})
    else:
        print(_pace(records, result.seconds))


def _show_topic(topic: "TopicStats") -> None:
    print(
        f"{topic.topic}: {topic.records:,} records, {topic.size_bytes:,} bytes of keys and values, "
        f"{topic.keys:,} keys"
    )
    print(
        f"from {_time(topic.first_ms)} to {_time(topic.last_ms)}: {topic.records_per_s:,.1f} "
        f"records/s, at most {topic.peak_records_per_s:,.1f}"
    )
    print(f"skew: the largest partition has {topic.skew:.2f} times an even share")
    columns = ("partition", "records", "bytes", "keys~", "no key", "no value", "p50", "p99", "max")
    rows = [
        [
            partition.tp.partition,
            partition.records,
            partition.key_bytes + partition.value_bytes,
            partition.keys,
            partition.without_key,
            partition.without_value,
            partition.median_value_bytes,
            partition.p99_value_bytes,
            partition.most_value_bytes,
        ]
        for partition in topic.partitions
    ]
    show_table(columns, rows)
    if topic.top_keys:
        _show_keys(topic)


def _show_keys(topic: "TopicStats") -> None:
    from penstock.spark.jobs.stats_summary import show_key

    rows = [
        [
            show_key(key.key)[:_KEY_CHARACTERS],
            key.records,
            f"{key.records / topic.records:.1%}",
            key.partitions,
        ]
        for key in topic.top_keys
    ]
    show_table(("most frequent keys", "records", "share", "partitions"), rows)


def write_plots(result: "StatsResult", folder: Path) -> Iterable[Path]:
    from penstock.spark.jobs.stats_charts import draw

    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for topic in result.topics:
            for name, chart in draw(topic).items():
                (folder / name).write_text(chart, encoding="utf-8")
                written.append(folder / name)
    except OSError as error:
        fail(f"cannot write plots to {folder}: {error.strerror}", 1)
    return written


def _pace(records: int, seconds: float) -> str:
    return f"{records:,} records in {seconds:.1f} s ({records / max(seconds, 1e-3):,.0f} records/s)"


def _pace_as_json(records: int, seconds: float) -> dict[str, float]:
    return {
        "seconds": round(seconds, 3),
        "records_per_s": round(records / max(seconds, 1e-3), 1),
    }


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
