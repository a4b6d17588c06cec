"""Decides which duplicate records and sequence gaps are problems. Pure.

With an identity given by the user, every copy is a problem. Otherwise copies are a problem only
where they are rare, because repetitive data shows no duplicates. docs/jobs.md has the measurements.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.content import Duplicates, Identity, SequenceGap
from penstock.spark.jobs.findings import AuditFinding, FindingKind
from penstock.spark.jobs.numbering import Anomaly, Flaw, NumberRun, find_anomalies

_FEW = 3
# Copies are a problem up to one in this many records. Consecutive copies at a constant distance
# were resent together; scattered ones are more often intended, above all with another timestamp.
_BLOCK = 5  # records
_RARE_IN_BLOCKS = 10
_RARE_EXACT = 100
_RARE_OTHER = 1_000
_SAME = "key, value and time"
_ANOTHER_TIME = "key, value and headers, at another time or sequence"


def judge_duplicates(
    partitions: Sequence[TopicPartition],
    records: Mapping[TopicPartition, int],
    compacted: Collection[TopicPartition],
    duplicates: Iterable[Duplicates],
    identity: Identity,
) -> Iterator[AuditFinding]:
    """`duplicates` are ordered by partition, those with exact copies first.

    On compacted topics, writing the same record again is normal use.
    """
    for partition_index, rows in groupby(duplicates, key=lambda row: row.partition_index):
        tp, contents = partitions[partition_index], list(rows)
        exact_copies, copies = contents[0].all_exact_copies, contents[0].all_copies
        same = ", ".join(identity.columns)
        classes = [_CopyClass(_exact(contents), exact_copies, _RARE_EXACT, same, _SAME)]
        if copies > exact_copies and not identity.is_given:
            rare = None if tp in compacted else _RARE_OTHER
            others = _others(contents)
            classes.append(
                _CopyClass(others, copies - exact_copies, rare, _ANOTHER_TIME, "key and value")
            )
        for copy_class in classes:
            yield from _judge(tp, records[tp], copy_class, identity.is_given)


class _CopyClass(NamedTuple):
    """Copies in one partition that agree with their originals in the same columns."""

    copies: "list[_Copies]"  # those returned by Spark
    all_copies: int
    rare: int | None  # scattered copies are a problem up to one in this many; None: never
    same: str
    same_in_short: str


def _judge(
    tp: TopicPartition, total: int, copy_class: _CopyClass, is_identity_given: bool
) -> Iterator[AuditFinding]:
    joined = _join_adjacent(sorted(copy_class.copies, key=lambda copy: copy.last))
    blocks = [run for run in joined if run.is_block]
    scattered = [run for run in joined if not run.is_block]
    in_blocks = sum(block.size for block in blocks)
    problems: list[_Copies] = []
    undecided: list[_Copies] = []
    undecided_count = 0
    for copies, count, rare in (
        (blocks, in_blocks, copy_class.rare and _RARE_IN_BLOCKS),
        (scattered, copy_class.all_copies - in_blocks, copy_class.rare),
    ):
        if is_identity_given or (rare is not None and is_rare(count, total, rare)):
            problems += copies
        else:
            undecided, undecided_count = undecided + copies, undecided_count + count
    yield from _problems(tp, problems, copy_class.same)
    if undecided:
        yield _note(tp, undecided[0], undecided_count, total, copy_class.same_in_short)


def without_reported(
    findings: Iterable[AuditFinding], reported: Iterable[AuditFinding]
) -> Iterator[AuditFinding]:
    """Drops duplicates by content that the producer's sequences have already shown."""
    by_sequence = [finding for finding in reported if finding.kind is FindingKind.DUPLICATE]
    for finding in findings:
        if finding.kind is not FindingKind.DUPLICATE or not any(
            _is_within(finding, other) for other in by_sequence
        ):
            yield finding


def _is_within(finding: AuditFinding, other: AuditFinding) -> bool:
    return (
        finding.tp == other.tp
        and other.offset <= finding.offset
        and finding.last_offset <= other.last_offset
    )


def is_rare(copies: int, records: int, one_in: int) -> bool:
    return copies <= max(_FEW, records // one_in)


class _Copies(NamedTuple):
    """Consecutive records that are copies of earlier ones."""

    first: int  # offset of the first original
    last: int  # offset of its latest copy
    size: int  # consecutive records, each with a copy at the same distance
    between: int  # further copies of a record between its first and its last

    @property
    def is_block(self) -> bool:
        return self.size >= _BLOCK and not self.between


def _exact(contents: Iterable[Duplicates]) -> list[_Copies]:
    return [
        _Copies(content.exact_first, content.exact_last, 1, content.exact_copies - 1)
        for content in contents
        if content.exact_first is not None and content.exact_last is not None
    ]


def _others(contents: Iterable[Duplicates]) -> list[_Copies]:
    return [
        _Copies(content.first, content.last, 1, content.copies - 1)
        for content in contents
        if not content.exact_copies
    ]


def _problems(tp: TopicPartition, copies: Iterable[_Copies], same: str) -> Iterator[AuditFinding]:
    for copy in copies:
        end = copy.last + copy.size - 1
        if copy.size > 1:
            originals = f"records at offsets {copy.first} to {copy.first + copy.size - 1}"
            text = f"duplicates of the {originals}"
        else:
            text = f"duplicate of the record at offset {copy.first}"
        more = f"; {copy.between} more copies in between" if copy.between else ""
        yield AuditFinding(FindingKind.DUPLICATE, tp, copy.last, end, f"{text} (same {same}){more}")


def _join_adjacent(copies: Iterable[_Copies]) -> list[_Copies]:
    """Joins adjacent copies, so that a batch written twice is one finding."""
    joined: list[_Copies] = []
    for copy in copies:
        before = joined[-1] if joined else None
        if before is not None and _continues(before, copy):
            joined[-1] = before._replace(size=before.size + 1)
        else:
            joined.append(copy)
    return joined


def _continues(before: _Copies, copy: _Copies) -> bool:
    is_next = copy.last == before.last + before.size
    return is_next and copy == before._replace(
        first=before.first + before.size, last=copy.last, size=1
    )


def _note(
    tp: TopicPartition, example: _Copies, copies: int, records: int, same: str
) -> AuditFinding:
    text = (
        f"{copies:,} of {records:,} records have the same {same} as an earlier one, this one as "
        f"offset {example.first}; the data does not show whether they are duplicates: say with "
        "--identity which columns identify a record"
    )
    return AuditFinding(
        FindingKind.DUPLICATE, tp, example.last, example.last, text, is_problem=False
    )


# The application's own sequence numbers.


def judge_sequence_gaps(
    partitions: Sequence[TopicPartition], gaps: Iterable[SequenceGap]
) -> Iterator[AuditFinding]:
    by_key: dict[tuple[int, bytes | None], list[SequenceGap]] = {}
    for gap in gaps:
        by_key.setdefault((gap.partition_index, gap.key), []).append(gap)
    for (partition_index, key), key_gaps in by_key.items():
        for anomaly in find_anomalies(_runs(key_gaps)):
            yield _number_finding(partitions[partition_index], key, anomaly)


def _runs(gaps: Iterable[SequenceGap]) -> Iterator[NumberRun]:
    """The numbers of a key as runs: between two gaps they are in order."""
    following: int | None = None
    for gap in gaps:
        if following is None or gap.highest >= following:
            first = gap.highest if following is None else following
            yield NumberRun(first, gap.highest, gap.offset)
            following = gap.highest + 1
        yield NumberRun(gap.number, gap.number, gap.offset)
        following = max(following, gap.number + 1)


def _number_finding(tp: TopicPartition, key: bytes | None, anomaly: Anomaly) -> AuditFinding:
    of_key = "without a key" if key is None else f"of key {_shown(key)}"
    numbers = f"number {anomaly.first}"
    if anomaly.last > anomaly.first:
        numbers = f"numbers {anomaly.first} to {anomaly.last}"
    match anomaly.flaw:
        case Flaw.MISSING:
            kind, text = FindingKind.MISSING, f"{numbers} {of_key} missing before this record"
        case Flaw.LATE:
            kind = FindingKind.ORDER
            text = f"{numbers} {of_key} comes after a higher one, at offset {anomaly.behind}"
        case Flaw.REPEATED:
            kind, text = FindingKind.DUPLICATE, f"{numbers} {of_key} appears a second time"
    return AuditFinding(kind, tp, anomaly.offset, anomaly.offset, text)


def _shown(key: bytes) -> str:
    return repr(key[:40].decode("utf-8", "backslashreplace"))
