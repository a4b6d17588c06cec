"""What repeated records and numbers out of step mean."""

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.content import Identity, Repeats, Step, parse_identity
from penstock.spark.jobs.content_verdict import is_rare, judge_repeats, judge_steps
from penstock.spark.jobs.findings import Finding, Kind

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
RECORDS = dict.fromkeys(PARTITIONS, 10_000)


def judged(*repeats: Repeats, identity: Identity | None = None) -> list[Finding]:
    return list(judge_repeats(PARTITIONS, RECORDS, repeats, identity or Identity()))


def numbered(*steps: tuple[int, int, int], key: bytes | None = b"k") -> list[tuple[Kind, int, str]]:
    """(offset, number, highest before)."""
    found = list(judge_steps(PARTITIONS, [Step(1, key, *each) for each in steps]))
    assert {each.partition for each in found} == {PARTITIONS[1]}
    return [(each.kind, each.offset, each.message) for each in found]


def test_a_rare_copy_is_a_problem_named_by_its_offset() -> None:
    (finding,) = judged(Repeats(1, 5, 90, 1, 5, 90, all_twins=1, all_repeats=1))
    assert str(finding) == (
        "t-1 offset 90: the record is the same as that of offset 5 (key, value, headers, timestamp)"
    )
    assert finding.is_problem


def test_data_that_repeats_itself_shows_no_duplicates() -> None:
    (finding,) = judged(Repeats(0, 0, 9_999, 5_000, 0, 7, all_twins=5_000, all_repeats=5_000))
    assert not finding.is_problem
    assert "5,000 of 10,000 records are not told apart" in finding.message


def test_the_same_at_another_time_is_a_note() -> None:
    (finding,) = judged(Repeats(0, 3, 80, 0, None, None, all_twins=0, all_repeats=40))
    assert (finding.is_problem, finding.offset) == (False, 80)
    assert "40 records" in finding.message
    assert "offset 3" in finding.message


def test_whoever_says_what_makes_records_the_same_is_believed() -> None:
    many = Repeats(0, 0, 9_999, 5_000, 0, 7, all_twins=5_000, all_repeats=6_000)
    (finding,) = judged(many, identity=parse_identity("key, value"))
    assert finding.is_problem
    assert finding.message.endswith("(key, value); between them are 4999 more")


def test_rare_is_one_in_a_hundred_or_very_few() -> None:
    assert is_rare(3, 5)
    assert not is_rare(4, 5)
    assert is_rare(100, 10_000)
    assert not is_rare(101, 10_000)


def test_numbers_that_lack_are_missing_before_the_next() -> None:
    assert numbered((10, 8, 5)) == [
        (Kind.MISSING, 10, "numbers 6 to 7 of key 'k' missing before this record")
    ]


def test_a_swapped_pair_of_numbers_is_out_of_order() -> None:
    assert numbered((10, 7, 5), (11, 6, 7)) == [
        (Kind.ORDER, 11, "number 6 of key 'k' comes after a higher one, at offset 10")
    ]


def test_a_number_that_comes_again_is_a_duplicate() -> None:
    assert numbered((10, 5, 5), (20, 9, 9), key=None) == [
        (Kind.DUPLICATE, 10, "number 5 without a key is there a second time"),
        (Kind.DUPLICATE, 20, "number 9 without a key is there a second time"),
    ]
