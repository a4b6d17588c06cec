"""What repeated records and numbers out of step mean. Pure.

Without being told what makes records the same one, an audit calls it a problem only where a copy
has all of another record, its time included, and where such copies are rare: data that says the
same thing again and again shows no duplicates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.content import Identity, Repeats, Step
from penstock.spark.jobs.findings import Finding, Kind
from penstock.spark.jobs.numbering import Anomaly, Flaw, Run, judge

_FEW = 3
_RARE = 100  # at most one in so many


def judge_repeats(
    partitions: Sequence[TopicPartition],
    records: Mapping[TopicPartition, int],
    repeats: Iterable[Repeats],
    identity: Identity,
) -> Iterator[Finding]:
    """`repeats` by partition; those with twins come first."""
    for place, found in groupby(repeats, key=lambda each: each.place):
        partition, contents = partitions[place], list(found)
        twins, copies = contents[0].all_twins, contents[0].all_repeats
        if identity.is_given or is_rare(twins, records[partition]):
            yield from (_twin(partition, each, identity) for each in contents if each.twins)
        else:
            yield _indistinct(partition, contents[0], records[partition])
        if copies > twins and not identity.is_given:
            yield _repeated(partition, contents, copies - twins)


def is_rare(copies: int, records: int) -> bool:
    return copies <= max(_FEW, records // _RARE)


def _twin(partition: TopicPartition, found: Repeats, identity: Identity) -> Finding:
    assert found.twin_first is not None
    assert found.twin_last is not None
    same = ", ".join(identity.columns)
    text = f"the record is the same as that of offset {found.twin_first} ({same})"
    if found.twins > 1:
        text += f"; between them are {found.twins - 1} more"
    return Finding(Kind.DUPLICATE, partition, found.twin_last, found.twin_last, text)


def _indistinct(partition: TopicPartition, first: Repeats, records: int) -> Finding:
    text = (
        f"{first.all_twins:,} of {records:,} records are not told apart by key, value, headers and "
        "time: whether some are duplicates cannot be seen"
    )
    offset = first.last if first.twin_last is None else first.twin_last
    return Finding(Kind.DUPLICATE, partition, offset, offset, text, is_problem=False)


def _repeated(partition: TopicPartition, contents: Sequence[Repeats], copies: int) -> Finding:
    """A note: to say the same again at another time is nobody's fault."""
    example = next((each for each in contents if not each.twins), contents[0])
    text = (
        f"{copies:,} records have the key, value and headers of an earlier one, as this one has "
        f"those of offset {example.first}, and another time or sequence; --identity key,value "
        "takes such for duplicates"
    )
    return Finding(Kind.DUPLICATE, partition, example.last, example.last, text, is_problem=False)


# Numbers of the application.


def judge_steps(partitions: Sequence[TopicPartition], steps: Iterable[Step]) -> Iterator[Finding]:
    by_key: dict[tuple[int, bytes | None], list[Step]] = {}
    for step in steps:
        by_key.setdefault((step.place, step.key), []).append(step)
    for (place, key), found in by_key.items():
        for anomaly in judge(_runs(found)):
            yield _number_finding(partitions[place], key, anomaly)


def _runs(steps: Iterable[Step]) -> Iterator[Run]:
    """All numbers of a key, as far as they matter: what lies between two steps was in order."""
    following: int | None = None
    for step in steps:
        if following is None or step.highest >= following:
            first = step.highest if following is None else following
            yield Run(first, step.highest, step.offset)
            following = step.highest + 1
        yield Run(step.number, step.number, step.offset)
        following = max(following, step.number + 1)


def _number_finding(partition: TopicPartition, key: bytes | None, anomaly: Anomaly) -> Finding:
    of_key = "without a key" if key is None else f"of key {_shown(key)}"
    numbers = f"number {anomaly.first}"
    if anomaly.last > anomaly.first:
        numbers = f"numbers {anomaly.first} to {anomaly.last}"
    match anomaly.flaw:
        case Flaw.MISSING:
            kind, text = Kind.MISSING, f"{numbers} {of_key} missing before this record"
        case Flaw.LATE:
            kind = Kind.ORDER
            text = f"{numbers} {of_key} comes after a higher one, at offset {anomaly.behind}"
        case Flaw.REPEATED:
            kind, text = Kind.DUPLICATE, f"{numbers} {of_key} is there a second time"
    return Finding(kind, partition, anomaly.offset, anomaly.offset, text)


def _shown(key: bytes) -> str:
    return repr(key[:40].decode("utf-8", "backslashreplace"))
