"""Concludes an audit from the reports of its tasks, partition by partition. Pure.

Everything that spans ranges is judged here: offsets, producers, leader epochs.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.findings import AuditFinding, FindingKind
from penstock.spark.jobs.numbering import Anomaly, Flaw, find_anomalies
from penstock.spark.jobs.producer_runs import judge_producers
from penstock.spark.jobs.range_audit import AuditRange, RangeReport

_LOSSES = (
    *(
        FindingKind.MISSING,
        FindingKind.CRC,
        FindingKind.RECORDS,
        FindingKind.UNREADABLE,
        FindingKind.DELETED,
    ),
    FindingKind.ORDER,  # the offset is corrupt: which records they are is not known
)


class PartitionTotals(NamedTuple):
    tp: TopicPartition
    start: int
    end: int
    records: int
    batches: int
    markers: int
    size_bytes: int
    removed: int  # offsets whose records compaction removed
    problems: int

    def as_json(self) -> dict[str, Any]:
        fields = self._asdict()
        tp = fields.pop("tp")
        return {"topic": tp.topic, "partition": tp.partition, **fields}


class Verdict(NamedTuple):
    totals: list[PartitionTotals]
    findings: list[AuditFinding]  # by partition and offset
    omitted: int  # further findings of the same kinds


def conclude(tasks: Sequence[AuditRange], reports: Iterable[RangeReport]) -> Verdict:
    """Needs a report for every task's range."""
    by_range = {report.wanted: report for report in reports}
    verdicts = [
        _conclude_partition(list(ranges), by_range)
        for _, ranges in groupby(tasks, key=lambda task: task.wanted.tp)
    ]
    return Verdict(
        [totals for verdict in verdicts for totals in verdict.totals],
        [finding for verdict in verdicts for finding in verdict.findings],
        sum(verdict.omitted for verdict in verdicts),
    )


def _conclude_partition(tasks: Sequence[AuditRange], by_range: dict[Any, RangeReport]) -> Verdict:
    reports = [by_range[task.wanted] for task in tasks]
    tp, is_compacted = tasks[0].wanted.tp, tasks[0].is_compacted
    start, end = tasks[0].wanted.start, tasks[-1].wanted.end
    runs = chain.from_iterable(report.runs for report in reports)
    anomalies = find_anomalies(runs, start=start, end=end)
    producer_runs = chain.from_iterable(report.producer_runs for report in reports)
    findings = [
        *chain.from_iterable(report.findings for report in reports),
        *_of_offsets(tp, anomalies, is_compacted),
        *_of_epochs(tp, reports),
    ]
    lost = [
        (finding.offset, finding.last_offset) for finding in findings if finding.kind in _LOSSES
    ]
    findings += judge_producers(tp, producer_runs, is_compacted=is_compacted, lost=lost)
    findings.sort(key=lambda finding: (finding.offset, finding.kind))
    removed = sum(_size(anomaly) for anomaly in anomalies if anomaly.flaw is Flaw.MISSING)
    totals = PartitionTotals(
        tp=tp,
        start=start,
        end=end,
        records=sum(report.records for report in reports),
        batches=sum(report.batches for report in reports),
        markers=sum(report.markers for report in reports),
        size_bytes=sum(report.size_bytes for report in reports),
        removed=_vacant(reports) + removed if is_compacted else 0,
        problems=sum(finding.is_problem for finding in findings),
    )
    return Verdict([totals], findings, sum(report.omitted for report in reports))


def _vacant(reports: Iterable[RangeReport]) -> int:
    return sum(report.vacant_offsets for report in reports)


def _size(anomaly: Anomaly) -> int:
    return anomaly.last - anomaly.first + 1


def _of_offsets(
    tp: TopicPartition, anomalies: Iterable[Anomaly], is_compacted: bool
) -> Iterator[AuditFinding]:
    for anomaly in anomalies:
        first, last = anomaly.first, anomaly.last
        match anomaly.flaw:
            case Flaw.MISSING:
                if not is_compacted:
                    text = f"{_size(anomaly)} offsets are missing, and the topic is not compacted"
                    yield AuditFinding(FindingKind.MISSING, tp, first, last, text)
            case Flaw.LATE:
                text = f"the batch comes after offset {anomaly.behind}, which is higher"
                yield AuditFinding(FindingKind.ORDER, tp, first, last, text)
            case Flaw.REPEATED:
                text = "these offsets appear in the log a second time"
                yield AuditFinding(FindingKind.DUPLICATE, tp, first, last, text)


def _of_epochs(tp: TopicPartition, reports: Iterable[RangeReport]) -> Iterator[AuditFinding]:
    """Leader epochs that go back between ranges; tasks check within their range."""
    latest = -1
    for report in reports:
        if not report.runs or report.first_epoch < 0:
            continue
        if report.first_epoch < latest:
            offset = report.runs[0].first
            text = f"leader epoch {report.first_epoch} follows epoch {latest}"
            yield AuditFinding(FindingKind.EPOCH, tp, offset, offset, text)
        latest = report.last_epoch
