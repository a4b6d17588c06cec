"""What repeated records and numbers out of step mean."""

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
    *repeats: Duplicates, identity: Identity | None = None, compacted: bool = False
) -> list[AuditFinding]:
    return list(
        judge_duplicates(
            PARTITIONS,
            RECORDS,
            PARTITIONS if compacted else (),
            repeats,
            identity or Identity(),
        )
    )


def twin(first: int, last: int, *, twins: int = 1, all_twins: int = 1) -> Duplicates:
    return Duplicates(1, first, last, twins, twins, first, last, all_twins, all_twins)


def later(first: int, last: int, *, copies: int = 1, all_copies: int = 1) -> Duplicates:
    return Duplicates(1, first, last, copies, 0, None, None, 0, all_copies)


def numbered(
    *steps: tuple[int, int, int], key: bytes | None = b"k"
) -> list[tuple[FindingKind, int, str]]:
    """(offset, number, highest before)."""
    found = list(judge_sequence_gaps(PARTITIONS, [SequenceGap(1, key, *step) for step in steps]))
    assert {each.partition for each in found} == {PARTITIONS[1]}
    return [(each.kind, each.offset, each.message) for each in found]


def test_a_rare_copy_is_a_problem_named_by_its_offset() -> None:
    (finding,) = judged(twin(5, 90))
    assert str(finding) == (
        "t-1 offset 90: the record is that of offset 5 again (key, value, headers, timestamp)"
    )
    assert finding.is_problem
    (finding,) = judged(later(5, 90, copies=3, all_copies=3))
    assert str(finding) == (
        "t-1 offset 90: the record is that of offset 5 again (key, value and headers, at another "
        "time or sequence); 2 more lie between"
    )


def test_a_batch_that_was_written_twice_is_one_finding() -> None:
    copies = [twin(first, first + 20, all_twins=11) for first in (*range(10), 50)]
    first, alone = judged(*copies)
    assert (first.offset, first.last_offset) == (20, 29)
    assert first.message.startswith("the records are those of offsets 0 to 9 again")
    assert (alone.offset, alone.last_offset) == (70, 70)


def test_data_that_repeats_itself_shows_no_duplicates() -> None:
    (finding,) = judged(twin(0, 7, twins=5_000, all_twins=5_000))
    assert (finding.is_problem, finding.offset) == (False, 7)
    assert "5,000 of 10,000 records have key, value and time of an earlier one" in finding.message
    (finding,) = judged(later(3, 80, copies=40, all_copies=40))
    assert (finding.is_problem, finding.offset) == (False, 80)


def test_records_that_were_sent_again_together_stand_out_from_those_that_are_alike() -> None:
    """At another time; and at the same one, between many that are the same by chance."""
    block = [later(first, first + 500, all_copies=80) for first in range(80)]
    (finding,) = judged(*block)
    assert (finding.is_problem, finding.offset, finding.last_offset) == (True, 500, 579)
    alike = [twin(9 * n, 9 * n + 2 + n % 5, all_twins=230) for n in range(200)]
    block = [twin(first, first + 30, all_twins=230) for first in range(5_000, 5_030)]
    problem, note = judged(*alike, *block)
    assert (problem.is_problem, problem.offset, problem.last_offset) == (True, 5_030, 5_059)
    assert not note.is_problem
    assert note.message.startswith("200 of 10,000 records have key, value and time")


def test_where_half_of_all_was_sent_twice_nobody_can_tell() -> None:
    (finding,) = judged(*(later(n, n + 5_000, all_copies=5_000) for n in range(5_000)))
    assert not finding.is_problem


def test_to_say_the_same_again_is_how_compacted_topics_are_used() -> None:
    assert [each.is_problem for each in judged(later(5, 90), compacted=True)] == [False]
    assert [each.is_problem for each in judged(twin(5, 90), compacted=True)] == [True]


def test_whoever_says_what_makes_records_the_same_is_believed() -> None:
    many = twin(0, 7, twins=5_000, all_twins=5_000)
    (finding,) = judged(many, identity=parse_identity("key, value"))
    assert finding.is_problem
    assert finding.message.endswith("again (key, value); 4999 more lie between")


def test_rare_is_one_in_so_many_or_very_few() -> None:
    assert is_rare(3, 5, 10)
    assert not is_rare(4, 5, 10)
    assert is_rare(100, 1_000, 10)
    assert not is_rare(101, 1_000, 10)


def test_numbers_that_lack_are_missing_before_the_next() -> None:
    assert numbered((10, 8, 5)) == [
        (FindingKind.MISSING, 10, "numbers 6 to 7 of key 'k' missing before this record")
    ]


def test_a_swapped_pair_of_numbers_is_out_of_order() -> None:
    assert numbered((10, 7, 5), (11, 6, 7)) == [
        (FindingKind.ORDER, 11, "number 6 of key 'k' comes after a higher one, at offset 10")
    ]


def test_a_number_that_comes_again_is_a_duplicate() -> None:
    assert numbered((10, 5, 5), (20, 9, 9), key=None) == [
        (FindingKind.DUPLICATE, 10, "number 5 without a key is there a second time"),
        (FindingKind.DUPLICATE, 20, "number 9 without a key is there a second time"),
    ]


def test_what_the_producers_sequences_show_is_not_told_twice() -> None:
    told = AuditFinding(FindingKind.DUPLICATE, PARTITIONS[0], 1_050, 1_099, "by its sequences")
    same = told._replace(message="by its content")
    others = [
        same._replace(offset=1_100, last_offset=1_149),
        same._replace(last_offset=1_100),
        same._replace(partition=PARTITIONS[1]),
        same._replace(kind=FindingKind.ORDER),
    ]
    assert list(without_reported([same, *others], [told])) == others
    missing = told._replace(kind=FindingKind.MISSING)
    assert list(without_reported([same], [missing])) == [same]
