"""The job `audit`: is every record there, once, in order and whole? Over all partitions of topics,
by ranges of offsets, in tasks of Spark's.

First every batch is looked at as bytes, then records are compared with each other. A verdict is
about the log as it was when the job began.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.admin_values import Resource, ResourceKind
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
from penstock.spark.jobs.record_rows import RecordRows, compared_of, read_twice
from penstock.spark.jobs.running import JobWatch, run_watched
from penstock.spark.jobs.scope import EdgeKind, JobScope, ResolvedScope, resolve_scope, topics_of
from penstock.spark.jobs.verdict import PartitionTotals, Verdict, conclude
from penstock.spark.source.plan import split_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_OFFSETS = 250_000  # of one task: half a second, so that progress shows
_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is asked of an audit."""

    scope: JobScope
    compares: bool = True  # records with each other, too
    identity: Identity = field(default_factory=Identity)
    sequence: str | None = None  # SQL for the number of a record among those of its key
    range_offsets: int = RANGE_OFFSETS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    totals: Sequence[PartitionTotals]
    findings: Sequence[AuditFinding]
    left_out: int  # findings beyond the most that are told
    seconds: float

    @property
    def problems(self) -> int:
        return sum(finding.is_problem for finding in self.findings) + self.left_out

    @property
    def records(self) -> int:
        return sum(each.records for each in self.totals)


def run_audit(
    spark: "SparkSession", client: BlockingClient, audit: Audit, watch: JobWatch
) -> AuditResult:
    started_s = time.monotonic()
    found = resolve_scope(client, audit.scope)
    asked = plan_audit(found, find_compacted(client, topics_of(found)), audit.range_offsets)
    settings = client.settings
    verdict = _look_at_batches(spark, asked, settings, watch)
    findings = [*_deleted(audit.scope, found), *verdict.findings]
    if audit.compares or audit.sequence is not None:
        compared = _compare(spark, asked, settings, audit, verdict, watch)
        findings += without_reported(compared, verdict.findings)
    findings.sort(key=lambda finding: (finding.partition, finding.offset))
    return AuditResult(
        totals=_with_problems(verdict.totals, findings),
        findings=findings,
        left_out=verdict.left_out,
        seconds=time.monotonic() - started_s,
    )


def plan_audit(
    found: ResolvedScope, compacted: Mapping[str, bool], range_offsets: int
) -> list[AuditRange]:
    """By partition and offset; partitions with nothing to look at are left out."""
    sized = [each for each in found.ranges if each.size]
    starts = {each.tp: each.start for each in sized}
    return [
        AuditRange(
            wanted=piece,
            is_first=piece.start == starts[piece.tp],
            high_watermark=found.log_ends[piece.tp],
            gaps_are_normal=compacted[piece.tp.topic],
        )
        for piece in split_ranges(sized, min_partitions=None, max_records=range_offsets)
    ]


def find_compacted(client: BlockingClient, topics: Sequence[str]) -> dict[str, bool]:
    """Of these logs compaction may have removed records."""
    resources = [Resource(ResourceKind.TOPIC, topic) for topic in topics]
    try:
        described = client.run(lambda each: each.admin.describe_configs(resources, names=[_POLICY]))
    except ClientError as error:
        raise ClusterNotReady(
            f"{error}; the audit must know whether topics are compacted"
        ) from None
    return {
        resource.name: any("compact" in (entry.value or "") for entry in entries)
        for resource, entries in described.items()
    }


def _look_at_batches(
    spark: "SparkSession", asked: Sequence[AuditRange], settings: ClientSettings, watch: JobWatch
) -> Verdict:
    if not asked:
        return Verdict([], [], 0)
    look = partial(audit_range, client=settings)
    tasks = spark.sparkContext.parallelize(asked, len(asked)).map(look)
    return conclude(asked, run_watched(spark, "look at batches", watch, tasks.collect))


def _compare(
    spark: "SparkSession",
    asked: Sequence[AuditRange],
    settings: ClientSettings,
    audit: Audit,
    verdict: Verdict,
    watch: JobWatch,
) -> Iterator[AuditFinding]:
    if not asked:
        return
    records = RecordRows(spark, asked, settings)
    if audit.compares:
        found = _find_repeats(spark, records, audit.identity, watch)
        totals = {each.partition: each.records for each in verdict.totals}
        compacted = {each.wanted.tp for each in asked if each.gaps_are_normal}
        yield from judge_duplicates(records.partitions, totals, compacted, found, audit.identity)
    if audit.sequence is not None:
        steps = find_sequence_gaps(records.all(), audit.sequence)
        rows = run_watched(spark, "follow numbers", watch, steps.collect)
        yield from judge_sequence_gaps(records.partitions, (_step(row) for row in rows))


def _find_repeats(
    spark: "SparkSession", records: RecordRows, identity: Identity, watch: JobWatch
) -> list[Duplicates]:
    compared = compared_of(identity)
    rows = records.all()
    if compared is not None:
        step = records.twice(compared)
        twice = read_twice(run_watched(spark, "compare records", watch, step.collect))
        if twice is not None and not twice.size:
            return []
        rows = rows if twice is None else records.those_of(twice, compared)
    repeats = find_duplicates(rows, identity, tasks=-(-records.offsets // RANGE_OFFSETS))
    found = run_watched(spark, "look at repeated records", watch, repeats.collect)
    return [Duplicates(*row) for row in found]


def _step(row: Any) -> SequenceGap:
    key = None if row.key is None else bytes(row.key)
    return SequenceGap(row.place, key, row.offset, row.number, row.highest)


def _deleted(scope: JobScope, found: ResolvedScope) -> Iterator[AuditFinding]:
    """Offsets that were named and are not there any more."""
    if scope.start.kind is not EdgeKind.OFFSET:
        return
    for each in found.ranges:
        first = found.log_starts[each.tp]
        if scope.start.value < first:
            text = f"deleted: the log begins at offset {first}"
            yield AuditFinding(FindingKind.DELETED, each.tp, scope.start.value, first - 1, text)


def _with_problems(
    totals: Sequence[PartitionTotals], findings: Sequence[AuditFinding]
) -> list[PartitionTotals]:
    problems = [finding.partition for finding in findings if finding.is_problem]
    return [each._replace(problems=problems.count(each.partition)) for each in totals]
