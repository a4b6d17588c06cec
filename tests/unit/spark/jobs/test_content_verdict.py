"""Which duplicates and sequence gaps an audit reports as problems."""

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.content import Duplicates, Identity, SequenceGap, parse_identity
from penstock.spark.jobs.content_verdict import (
    is_rare,
    judge_duplicates,
    judge_sequence_gaps,
    without_reported,
)
from penstock.spark.jobs.findings import AuditFinding, FindingKind

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
RECORDS = dict.fromkeys(PARTITIONS, 10_000)


def judged(
    *duplicates: Duplicates, identity: Identity | None = None, compacted: bool = False
) -> list[AuditFinding]:
    return list(
        judge_duplicates(
            PARTITIONS,
            RECORDS,
            PARTITIONS if compacted else (),
            duplicates,
            identity or Identity(),
        )
    )


def exact(first: int, last: int, *, exact_copies: int = 1, all_exact_copies: int = 1) -> Duplicates:
    return Duplicates(
        1, first, last, exact_copies, exact_copies, first, last, all_exact_copies, all_exact_copies
    )


def later(first: int, last: int, *, copies: int = 1, all_copies: int = 1) -> Duplicates:
    return Duplicates(1, first, last, copies, 0, None, None, 0, all_copies)


def numbered(
    *gaps: tuple[int, int, int], key: bytes | None = b"k"
) -> list[tuple[FindingKind, int, str]]:
    """Judge gaps given as (offset, number, highest before)."""
    findings = list(judge_sequence_gaps(PARTITIONS, [SequenceGap(1, key, *gap) for gap in gaps]))
    assert {finding.tp for finding in findings} == {PARTITIONS[1]}
    return [(finding.kind, finding.offset, finding.message) for finding in findings]


def test_rare_duplicate_is_reported_at_its_offset() -> None:
    (finding,) = judged(exact(5, 90))
    assert str(finding) == (
        "t-1 offset 90: duplicate of the record at offset 5 (same key, value, headers, timestamp)"
    )
    assert finding.is_problem
    (finding,) = judged(later(5, 90, copies=3, all_copies=3))
    assert str(finding) == (
        "t-1 offset 90: duplicate of the record at offset 5 (same key, value and headers, at "
        "another time or sequence); 2 more copies in between"
    )


def test_batch_written_twice_is_one_finding() -> None:
    copies = [exact(first, first + 20, all_exact_copies=11) for first in (*range(10), 50)]
    first, alone = judged(*copies)
    assert (first.offset, first.last_offset) == (20, 29)
    assert first.message.startswith("duplicates of the records at offsets 0 to 9 (same ")
    assert (alone.offset, alone.last_offset) == (70, 70)


def test_repetitive_data_yields_a_note_not_problems() -> None:
    (finding,) = judged(exact(0, 7, exact_copies=5_000, all_exact_copies=5_000))
    assert (finding.is_problem, finding.offset) == (False, 7)
    assert "5,000 of 10,000 records have the same key, value and time as" in finding.message
    (finding,) = judged(later(3, 80, copies=40, all_copies=40))
    assert (finding.is_problem, finding.offset) == (False, 80)


def test_resent_block_is_reported_among_similar_records() -> None:
    """With another timestamp, and with the same one among many that are equal by chance."""
    block = [later(first, first + 500, all_copies=80) for first in range(80)]
    (finding,) = judged(*block)
    assert (finding.is_problem, finding.offset, finding.last_offset) == (True, 500, 579)
    alike = [exact(9 * n, 9 * n + 2 + n % 5, all_exact_copies=230) for n in range(200)]
    block = [exact(first, first + 30, all_exact_copies=230) for first in range(5_000, 5_030)]
    problem, note = judged(*alike, *block)
    assert (problem.is_problem, problem.offset, problem.last_offset) == (True, 5_030, 5_059)
    assert not note.is_problem
    assert note.message.startswith("200 of 10,000 records have the same key, value and time")


def test_half_of_all_records_resent_is_a_note() -> None:
    (finding,) = judged(*(later(n, n + 5_000, all_copies=5_000) for n in range(5_000)))
    assert not finding.is_problem


def test_copies_at_another_time_are_normal_on_compacted_topics() -> None:
    assert [finding.is_problem for finding in judged(later(5, 90), compacted=True)] == [False]
    assert [finding.is_problem for finding in judged(exact(5, 90), compacted=True)] == [True]


def test_given_identity_makes_every_copy_a_problem() -> None:
    many = exact(0, 7, exact_copies=5_000, all_exact_copies=5_000)
    (finding,) = judged(many, identity=parse_identity("key, value"))
    assert finding.is_problem
    assert finding.message.endswith("(same key, value); 4999 more copies in between")


def test_rare_means_one_in_n_or_very_few() -> None:
    assert is_rare(3, 5, 10)
    assert not is_rare(4, 5, 10)
    assert is_rare(100, 1_000, 10)
    assert not is_rare(101, 1_000, 10)


def test_missing_numbers_are_reported_at_the_next_record() -> None:
    assert numbered((10, 8, 5)) == [
        (FindingKind.MISSING, 10, "numbers 6 to 7 of key 'k' missing before this record")
    ]


def test_swapped_numbers_are_out_of_order() -> None:
    assert numbered((10, 7, 5), (11, 6, 7)) == [
        (FindingKind.ORDER, 11, "number 6 of key 'k' comes after a higher one, at offset 10")
    ]


def test_repeated_number_is_a_duplicate() -> None:
    assert numbered((10, 5, 5), (20, 9, 9), key=None) == [
        (FindingKind.DUPLICATE, 10, "number 5 without a key appears a second time"),
        (FindingKind.DUPLICATE, 20, "number 9 without a key appears a second time"),
    ]


def test_duplicates_shown_by_sequences_are_not_reported_twice() -> None:
    reported = AuditFinding(FindingKind.DUPLICATE, PARTITIONS[0], 1_050, 1_099, "by its sequences")
    same = reported._replace(message="by its content")
    others = [
        same._replace(offset=1_100, last_offset=1_149),
        same._replace(last_offset=1_100),
        same._replace(tp=PARTITIONS[1]),
        same._replace(kind=FindingKind.ORDER),
    ]
    assert list(without_reported([same, *others], [reported])) == others
    missing = reported._replace(kind=FindingKind.MISSING)
    assert list(without_reported([same], [missing])) == [same]
