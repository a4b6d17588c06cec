"""The `audit` job: is every record present, once, in order and intact?

Spark tasks check every batch as bytes, range by range; then records are compared with each other.
The verdict is about the log as it was when the job started.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.admin_values import ConfigResource
from penstock.client.errors import ClientError
from penstock.spark.connect.connections import BlockingClient, ClientSettings
from penstock.spark.failures import ClusterNotReady
from penstock.spark.jobs.audit_task import audit_range
from penstock.spark.jobs.content import (
    Duplicates,
    Identity,
    SequenceGap,
    find_duplicates,
    find_sequence_gaps,
)
from penstock.spark.jobs.content_verdict import (
    judge_duplicates,
    judge_sequence_gaps,
    without_reported,
)
from penstock.spark.jobs.findings import AuditFinding, FindingKind
from penstock.spark.jobs.range_audit import AuditRange
from penstock.spark.jobs.record_rows import (
    RecordRows,
    choose_digested_columns,
    merge_duplicate_digests,
)
from penstock.spark.jobs.running import JobWatch, run_watched
from penstock.spark.jobs.scope import EdgeKind, JobScope, ResolvedScope, resolve_scope, topics_of
from penstock.spark.jobs.verdict import PartitionTotals, Verdict, conclude
from penstock.spark.source.plan import split_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_OFFSETS = 250_000  # per task: about half a second, so that progress is visible
_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The options of an audit."""

    scope: JobScope
    compares: bool = True  # whether records are also compared with each other
    identity: Identity = field(default_factory=Identity)
    sequence: str | None = None  # SQL: a record's sequence number within its key
    range_offsets: int = RANGE_OFFSETS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    totals: Sequence[PartitionTotals]
    findings: Sequence[AuditFinding]
    omitted: int  # problems beyond the reported ones
    seconds: float

    @property
    def problems(self) -> int:
        return sum(finding.is_problem for finding in self.findings) + self.omitted

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.totals)


def run_audit(
    spark: "SparkSession", client: BlockingClient, audit: Audit, watch: JobWatch
) -> AuditResult:
    started_s = time.monotonic()
    resolved = resolve_scope(client, audit.scope)
    tasks = plan_audit(resolved, find_compacted(client, topics_of(resolved)), audit.range_offsets)
    settings = client.settings
    verdict = _audit_batches(spark, tasks, settings, watch)
    findings = [*_deleted(audit.scope, resolved), *verdict.findings]
    if audit.compares or audit.sequence is not None:
        compared = _compare(spark, tasks, settings, audit, verdict, watch)
        findings += without_reported(compared, verdict.findings)
    findings.sort(key=lambda finding: (finding.tp, finding.offset))
    return AuditResult(
        totals=_with_problems(verdict.totals, findings),
        findings=findings,
        omitted=verdict.omitted,
        seconds=time.monotonic() - started_s,
    )


def plan_audit(
    resolved: ResolvedScope, compacted: Mapping[str, bool], range_offsets: int
) -> list[AuditRange]:
    """Tasks ordered by partition and offset; empty partitions are skipped."""
    sized = [span for span in resolved.ranges if span.size]
    starts = {span.tp: span.start for span in sized}
    return [
        AuditRange(
            wanted=piece,
            is_first=piece.start == starts[piece.tp],
            high_watermark=resolved.log_ends[piece.tp],
            is_compacted=compacted[piece.tp.topic],
        )
        for piece in split_ranges(sized, min_partitions=None, max_records=range_offsets)
    ]


def find_compacted(client: BlockingClient, topics: Sequence[str]) -> dict[str, bool]:
    """For each topic, whether compaction may have removed records."""
    resources = [ConfigResource.topic(topic) for topic in topics]
    try:
        described = client.run(
            lambda kafka: kafka.admin.describe_configs(resources, names=[_POLICY])
        )
    except ClientError as error:
        raise ClusterNotReady(
            f"{error}; the audit must know whether topics are compacted"
        ) from None
    return {
        resource.name: any("compact" in (entry.value or "") for entry in entries)
        for resource, entries in described.items()
    }


def _audit_batches(
    spark: "SparkSession", tasks: Sequence[AuditRange], settings: ClientSettings, watch: JobWatch
) -> Verdict:
    if not tasks:
        return Verdict([], [], 0)
    audit_one = partial(audit_range, client=settings)
    reports = spark.sparkContext.parallelize(tasks, len(tasks)).map(audit_one)
    return conclude(tasks, run_watched(spark, "check batches", watch, reports.collect))


def _compare(
    spark: "SparkSession",
    tasks: Sequence[AuditRange],
    settings: ClientSettings,
    audit: Audit,
    verdict: Verdict,
    watch: JobWatch,
) -> Iterator[AuditFinding]:
    if not tasks:
        return
    records = RecordRows(spark, tasks, settings)
    if audit.compares:
        duplicates = _find_duplicates(spark, records, audit.identity, watch)
        totals = {partition.tp: partition.records for partition in verdict.totals}
        compacted = {task.wanted.tp for task in tasks if task.is_compacted}
        yield from judge_duplicates(
            records.partitions, totals, compacted, duplicates, audit.identity
        )
    if audit.sequence is not None:
        gaps = find_sequence_gaps(records.all(), audit.sequence)
        rows = run_watched(spark, "check sequences", watch, gaps.collect)
        yield from judge_sequence_gaps(records.partitions, (_sequence_gap(row) for row in rows))


def _find_duplicates(
    spark: "SparkSession", records: RecordRows, identity: Identity, watch: JobWatch
) -> list[Duplicates]:
    """Compares digests first, so that only records with a repeated digest are shuffled."""
    columns = choose_digested_columns(identity)
    rows = records.all()
    if columns is not None:
        digests = records.duplicate_digests(columns)
        repeated = merge_duplicate_digests(
            run_watched(spark, "compare records", watch, digests.collect)
        )
        if repeated is not None and not repeated.size:
            return []
        rows = rows if repeated is None else records.with_digests(repeated, columns)
    duplicates = find_duplicates(rows, identity, tasks=-(-records.offsets // RANGE_OFFSETS))
    collected = run_watched(spark, "inspect duplicates", watch, duplicates.collect)
    return [Duplicates(*row) for row in collected]


def _sequence_gap(row: Any) -> SequenceGap:
    key = None if row.key is None else bytes(row.key)
    return SequenceGap(row.partition_index, key, row.offset, row.number, row.highest)


def _deleted(scope: JobScope, resolved: ResolvedScope) -> Iterator[AuditFinding]:
    """Findings for offsets that --start names and that are no longer in the log."""
    if scope.start.kind is not EdgeKind.OFFSET:
        return
    for span in resolved.ranges:
        first = resolved.log_starts[span.tp]
        if scope.start.value < first:
            text = f"deleted: the log starts at offset {first}"
            yield AuditFinding(FindingKind.DELETED, span.tp, scope.start.value, first - 1, text)


def _with_problems(
    totals: Sequence[PartitionTotals], findings: Sequence[AuditFinding]
) -> list[PartitionTotals]:
    problems = [finding.tp for finding in findings if finding.is_problem]
    return [partition._replace(problems=problems.count(partition.tp)) for partition in totals]
