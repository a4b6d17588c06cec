"""What repeated records and numbers out of step mean. Pure.

Whoever says what makes records the same one is believed. Else copies are a problem only where they
are rare: data that says the same thing again and again shows no duplicates. docs/jobs.md has what
was measured.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.content import Duplicates, Identity, SequenceGap
from penstock.spark.jobs.findings import AuditFinding, FindingKind
from penstock.spark.jobs.numbering import Anomaly, Flaw, NumberRun, find_anomalies

_FEW = 3
# A problem up to one in so many records. Copies one after the other, all at the same distance, were
# sent again together; those that lie scattered are more often meant so, at another time above all.
_BLOCK = 5  # records
_RARE_IN_BLOCKS = 10
_RARE_TWINS = 100
_RARE_REPEATS = 1_000
_SAME = "key, value and time"
_ANOTHER_TIME = "key, value and headers, at another time or sequence"


def judge_duplicates(
    partitions: Sequence[TopicPartition],
    records: Mapping[TopicPartition, int],
    compacted: Collection[TopicPartition],
    repeats: Iterable[Duplicates],
    identity: Identity,
) -> Iterator[AuditFinding]:
    """`repeats` by partition, those with twins first. Of compacted ones, to say the same again is
    how they are used."""
    for place, found in groupby(repeats, key=lambda each: each.place):
        partition, contents = partitions[place], list(found)
        twins, copies = contents[0].all_twins, contents[0].all_repeats
        sorts = [_Sort(_twins(contents), twins, _RARE_TWINS, ", ".join(identity.columns), _SAME)]
        if copies > twins and not identity.is_given:
            rare = None if partition in compacted else _RARE_REPEATS
            others = _others(contents)
            sorts.append(_Sort(others, copies - twins, rare, _ANOTHER_TIME, "key and value"))
        for sort in sorts:
            yield from _judge(partition, records[partition], sort, identity.is_given)


class _Sort(NamedTuple):
    """Copies of one partition that have the same in common with their originals."""

    copies: "list[_Copies]"  # those that were looked at
    all_copies: int
    rare: int | None  # scattered ones are a problem up to one in so many; None: they never are
    same: str
    same_in_short: str


def _judge(
    partition: TopicPartition, total: int, sort: _Sort, is_believed: bool
) -> Iterator[AuditFinding]:
    joined = _together(sorted(sort.copies, key=lambda copy: copy.last))
    blocks = [each for each in joined if each.is_block]
    scattered = [each for each in joined if not each.is_block]
    in_blocks = sum(each.size for each in blocks)
    told: list[_Copies] = []
    untold: list[_Copies] = []
    left = 0
    for found, count, rare in (
        (blocks, in_blocks, sort.rare and _RARE_IN_BLOCKS),
        (scattered, sort.all_copies - in_blocks, sort.rare),
    ):
        if is_believed or (rare is not None and is_rare(count, total, rare)):
            told += found
        else:
            untold, left = untold + found, left + count
    yield from _problems(partition, told, sort.same)
    if untold:
        yield _note(partition, untold[0], left, total, sort.same_in_short)


def without_reported(
    findings: Iterable[AuditFinding], told: Iterable[AuditFinding]
) -> Iterator[AuditFinding]:
    """What its producer's sequences show to be there twice is not told again for its content."""
    known = [each for each in told if each.kind is FindingKind.DUPLICATE]
    for each in findings:
        if each.kind is not FindingKind.DUPLICATE or not any(
            _is_within(each, one) for one in known
        ):
            yield each


def _is_within(finding: AuditFinding, other: AuditFinding) -> bool:
    return (
        finding.partition == other.partition
        and other.offset <= finding.offset
        and finding.last_offset <= other.last_offset
    )


def is_rare(copies: int, records: int, one_in: int) -> bool:
    return copies <= max(_FEW, records // one_in)


class _Copies(NamedTuple):
    """Records that are the same as earlier ones, one after the other."""

    first: int  # offset of the earliest of the first
    last: int  # offset of its latest copy
    size: int  # how many records so, each with a copy at the same distance
    between: int  # copies of one record between its first and last

    @property
    def is_block(self) -> bool:
        return self.size >= _BLOCK and not self.between


def _twins(contents: Iterable[Duplicates]) -> list[_Copies]:
    return [
        _Copies(each.twin_first, each.twin_last, 1, each.twins - 1)
        for each in contents
        if each.twin_first is not None and each.twin_last is not None
    ]


def _others(contents: Iterable[Duplicates]) -> list[_Copies]:
    return [
        _Copies(each.first, each.last, 1, each.copies - 1) for each in contents if not each.twins
    ]


def _problems(
    partition: TopicPartition, copies: Iterable[_Copies], same: str
) -> Iterator[AuditFinding]:
    for each in copies:
        end = each.last + each.size - 1
        if each.size > 1:
            text = f"the records are those of offsets {each.first} to {each.first + each.size - 1}"
        else:
            text = f"the record is that of offset {each.first}"
        more = f"; {each.between} more lie between" if each.between else ""
        yield AuditFinding(
            FindingKind.DUPLICATE, partition, each.last, end, f"{text} again ({same}){more}"
        )


def _together(copies: Iterable[_Copies]) -> list[_Copies]:
    """A batch that was written twice is one finding."""
    joined: list[_Copies] = []
    for each in copies:
        before = joined[-1] if joined else None
        if before is not None and _goes_on(before, each):
            joined[-1] = before._replace(size=before.size + 1)
        else:
            joined.append(each)
    return joined


def _goes_on(before: _Copies, copy: _Copies) -> bool:
    is_next = copy.last == before.last + before.size
    return is_next and copy == before._replace(
        first=before.first + before.size, last=copy.last, size=1
    )


def _note(
    partition: TopicPartition, example: _Copies, copies: int, records: int, same: str
) -> AuditFinding:
    text = (
        f"{copies:,} of {records:,} records have {same} of an earlier one, as this one those of "
        f"offset {example.first}: whether some are duplicates cannot be seen; --identity says what "
        "makes records the same"
    )
    return AuditFinding(
        FindingKind.DUPLICATE, partition, example.last, example.last, text, is_problem=False
    )


# Numbers of the application.


def judge_sequence_gaps(
    partitions: Sequence[TopicPartition], steps: Iterable[SequenceGap]
) -> Iterator[AuditFinding]:
    by_key: dict[tuple[int, bytes | None], list[SequenceGap]] = {}
    for step in steps:
        by_key.setdefault((step.place, step.key), []).append(step)
    for (place, key), found in by_key.items():
        for anomaly in find_anomalies(_runs(found)):
            yield _number_finding(partitions[place], key, anomaly)


def _runs(steps: Iterable[SequenceGap]) -> Iterator[NumberRun]:
    """All numbers of a key, as far as they matter: what lies between two steps was in order."""
    following: int | None = None
    for step in steps:
        if following is None or step.highest >= following:
            first = step.highest if following is None else following
            yield NumberRun(first, step.highest, step.offset)
            following = step.highest + 1
        yield NumberRun(step.number, step.number, step.offset)
        following = max(following, step.number + 1)


def _number_finding(partition: TopicPartition, key: bytes | None, anomaly: Anomaly) -> AuditFinding:
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
            kind, text = FindingKind.DUPLICATE, f"{numbers} {of_key} is there a second time"
    return AuditFinding(kind, partition, anomaly.offset, anomaly.offset, text)


def _shown(key: bytes) -> str:
    return repr(key[:40].decode("utf-8", "backslashreplace"))
