"""What an audit concludes from the reports of its tasks, partition by partition. Pure.

Whatever goes across the borders of ranges is judged here: offsets, producers, leader epochs.
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
    FindingKind.ORDER,  # a wrong offset: whose records they are is not known
)


class PartitionTotals(NamedTuple):
    partition: TopicPartition
    start: int
    end: int
    records: int
    batches: int
    markers: int
    size_bytes: int
    removed: int  # offsets without a record, where compaction explains it
    problems: int

    def as_json(self) -> dict[str, Any]:
        fields = self._asdict()
        partition = fields.pop("partition")
        return {"topic": partition.topic, "partition": partition.partition, **fields}


class Verdict(NamedTuple):
    totals: list[PartitionTotals]
    findings: list[AuditFinding]  # by partition and offset
    left_out: int  # more of the kind of those that are told


def conclude(asked: Sequence[AuditRange], reports: Iterable[RangeReport]) -> Verdict:
    """Of every range that was asked for there is a report."""
    by_range = {report.wanted: report for report in reports}
    verdicts = [
        _conclude_partition(list(ranges), by_range)
        for _, ranges in groupby(asked, key=lambda each: each.wanted.tp)
    ]
    return Verdict(
        [totals for verdict in verdicts for totals in verdict.totals],
        [finding for verdict in verdicts for finding in verdict.findings],
        sum(verdict.left_out for verdict in verdicts),
    )


def _conclude_partition(asked: Sequence[AuditRange], by_range: dict[Any, RangeReport]) -> Verdict:
    reports = [by_range[each.wanted] for each in asked]
    partition, gaps_are_normal = asked[0].wanted.tp, asked[0].gaps_are_normal
    start, end = asked[0].wanted.start, asked[-1].wanted.end
    runs = chain.from_iterable(report.runs for report in reports)
    anomalies = find_anomalies(runs, start=start, end=end)
    producer_runs = chain.from_iterable(report.producer_runs for report in reports)
    findings = [
        *chain.from_iterable(report.findings for report in reports),
        *_of_offsets(partition, anomalies, gaps_are_normal),
        *_of_epochs(partition, reports),
    ]
    lost = [(each.offset, each.last_offset) for each in findings if each.kind in _LOSSES]
    findings += judge_producers(
        partition, producer_runs, gaps_are_normal=gaps_are_normal, lost=lost
    )
    findings.sort(key=lambda finding: (finding.offset, finding.kind))
    removed = sum(_size(each) for each in anomalies if each.flaw is Flaw.MISSING)
    totals = PartitionTotals(
        partition=partition,
        start=start,
        end=end,
        records=sum(report.records for report in reports),
        batches=sum(report.batches for report in reports),
        markers=sum(report.markers for report in reports),
        size_bytes=sum(report.size_bytes for report in reports),
        removed=_vacant(reports) + removed if gaps_are_normal else 0,
        problems=sum(finding.is_problem for finding in findings),
    )
    return Verdict([totals], findings, sum(report.left_out for report in reports))


def _vacant(reports: Iterable[RangeReport]) -> int:
    return sum(report.vacant_offsets for report in reports)


def _size(anomaly: Anomaly) -> int:
    return anomaly.last - anomaly.first + 1


def _of_offsets(
    partition: TopicPartition, anomalies: Iterable[Anomaly], gaps_are_normal: bool
) -> Iterator[AuditFinding]:
    for each in anomalies:
        first, last = each.first, each.last
        match each.flaw:
            case Flaw.MISSING:
                if not gaps_are_normal:
                    text = f"{_size(each)} offsets are missing, and the topic is not compacted"
                    yield AuditFinding(FindingKind.MISSING, partition, first, last, text)
            case Flaw.LATE:
                text = f"the batch comes after offset {each.behind}, which is higher"
                yield AuditFinding(FindingKind.ORDER, partition, first, last, text)
            case Flaw.REPEATED:
                text = "the log has these offsets a second time"
                yield AuditFinding(FindingKind.DUPLICATE, partition, first, last, text)


def _of_epochs(partition: TopicPartition, reports: Iterable[RangeReport]) -> Iterator[AuditFinding]:
    """Within ranges the tasks have looked."""
    latest = -1
    for report in reports:
        if not report.runs or report.first_epoch < 0:
            continue
        if report.first_epoch < latest:
            offset = report.runs[0].first
            text = f"leader epoch {report.first_epoch} follows epoch {latest}"
            yield AuditFinding(FindingKind.EPOCH, partition, offset, offset, text)
        latest = report.last_epoch
