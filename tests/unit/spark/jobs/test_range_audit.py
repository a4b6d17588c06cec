"""What an audit finds in a log's bytes, wherever the log is split into ranges."""

import pytest
from tests.unit.spark.jobs.log_samples import (
    audited,
    batch,
    batches,
    ranges,
    read_whole,
    reported,
)

from penstock.model.ids import TopicPartition
from penstock.protocol.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_BYTES,
    MAGIC_POSITION,
    compute_crc,
    stamp_offset_and_epoch,
)
from penstock.protocol.control import build_end_marker_batch
from penstock.spark.jobs.range_audit import RangeAudit

CUTS: list[list[int]] = [[], [10], [15], [20, 30], [25], [5, 15, 25, 35]]
cut_anywhere = pytest.mark.parametrize("cuts", CUTS, ids=str)


@cut_anywhere
def test_clean_log_has_no_findings_and_is_counted_once(cuts: list[int]) -> None:
    verdict = audited(batches(5), 50, cuts=cuts)
    assert verdict.findings == []
    (totals,) = verdict.totals
    assert (totals.records, totals.batches, totals.removed, totals.problems) == (50, 5, 0, 0)
    assert totals.size_bytes == sum(len(batch) for batch in batches(5))
    assert (totals.tp, totals.start, totals.end) == (TopicPartition("t", 0), 0, 50)


@cut_anywhere
def test_flipped_bit_is_reported_with_its_batch(cuts: list[int]) -> None:
    log = batches(5)
    log[2][HEADER_BYTES + 20] ^= 0x10
    verdict = audited(log, 50, cuts=cuts)
    assert reported(verdict) == [("crc", 20, 29)]
    assert str(verdict.findings[0]).startswith("t-0 offset 20 to 29: the CRC of the batch's ")
    assert verdict.totals[0].records == 40


@pytest.mark.parametrize("position", range(ATTRIBUTES_POSITION, HEADER_BYTES))
def test_flipped_header_bit_is_one_finding(position: int) -> None:
    log = batches(5)
    log[2][position] ^= 0x01
    kinds = {(kind, offset) for kind, offset, _ in reported(audited(log, 50))}
    assert kinds == {("crc", 20)}


@cut_anywhere
def test_missing_batch_is_reported_by_its_offsets(cuts: list[int]) -> None:
    log = batches(5)
    del log[2]
    assert reported(audited(log, 50, cuts=cuts)) == [("missing", 20, 29)]
    verdict = audited(log, 50, cuts=cuts, compacted=True)
    assert verdict.findings == []
    assert verdict.totals[0].removed == 10


def test_missing_batches_at_both_ends_are_reported() -> None:
    assert reported(audited(batches(5)[1:4], 50)) == [("missing", 0, 9), ("missing", 40, 49)]


def test_record_missing_in_its_batch_is_reported() -> None:
    log: list[bytearray] = [batch(0), batch(10, without=[13, 14, 19]), batch(20)]
    assert reported(audited(log, 30)) == [("missing", 13, 14), ("missing", 19, 19)]
    verdict = audited(log, 30, compacted=True)
    assert verdict.findings == []
    assert verdict.totals[0].removed == 3


def test_transaction_markers_take_offsets_but_are_not_records() -> None:
    marker = build_end_marker_batch(
        commit=True,
        coordinator_epoch=0,
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=10,
        leader_epoch=0,
    )
    log = [batch(0, producer=7, sequence=0), marker, batch(11, producer=7, sequence=10)]
    verdict = audited(log, 21)
    assert verdict.findings == []
    assert (verdict.totals[0].records, verdict.totals[0].markers) == (20, 1)


@pytest.mark.parametrize("cuts", [[], [5], [10], [30], [45]], ids=str)
def test_swapped_batches_are_out_of_order(cuts: list[int]) -> None:
    log = batches(5)
    log[1], log[2] = log[2], log[1]
    verdict = audited(log, 50, cuts=cuts)
    assert reported(verdict) == [("order", 10, 19)]
    assert verdict.findings[0].message == "the batch comes after offset 20, which is higher"


def test_batch_appearing_twice_is_a_duplicate() -> None:
    log = batches(4)
    log.insert(2, log[1])
    assert reported(audited(log, 40)) == [("duplicate", 10, 19)]


def test_producer_batch_written_twice_is_a_duplicate() -> None:
    log = [
        batch(first, producer=7, sequence=sequence)
        for first, sequence in [(0, 0), (10, 10), (20, 10), (30, 20)]
    ]
    assert reported(audited(log, 40, cuts=[20])) == [("duplicate", 20, 29)]


def test_sequences_of_lost_records_are_not_reported_again() -> None:
    log = [batch(first, producer=7, sequence=first) for first in range(0, 50, 10)]
    log[1][-1] ^= 1
    del log[3]
    assert reported(audited(log, 50)) == [("crc", 10, 19), ("missing", 30, 39)]
    gone_before = [batch(0, producer=7, sequence=0), batch(10, producer=7, sequence=30)]
    assert reported(audited(gone_before, 20)) == [("missing", 10, 10)]


def test_corrupt_offset_affects_only_its_batch() -> None:
    for wrong in (2**40, 10**6, 5, 41):
        log = batches(5)
        stamp_offset_and_epoch(log[2], 0, wrong, 0)
        assert reported(audited(log, 50)) == [("order", 20, 29)], wrong


def test_leader_epoch_that_goes_back_is_reported() -> None:
    log = [batch(0, epoch=3), batch(10, epoch=4), batch(20, epoch=3), batch(30, epoch=4)]
    for cuts in ([], [10], [20], [30]):
        assert [finding[:2] for finding in reported(audited(log, 40, cuts=cuts))] == [("epoch", 20)]


def test_undecodable_records_with_a_valid_crc_are_reported() -> None:
    log = batches(3)
    log[1][HEADER_BYTES] = 0x7E  # the length of the first record
    log[1][CRC_POSITION:ATTRIBUTES_POSITION] = compute_crc(log[1]).to_bytes(4, "big")
    verdict = audited(log, 30)
    assert reported(verdict) == [("records", 10, 19)]
    assert verdict.totals[0].records == 20


def test_position_without_a_batch_is_returned_as_damage() -> None:
    log = batches(4)
    log[2][MAGIC_POSITION] = 9
    (task,) = ranges(40)
    audit = RangeAudit(task)
    taken = audit.take(memoryview(b"".join(log)))
    assert (taken.next_offset, taken.is_done, len(taken.sound)) == (20, False, 2)
    assert taken.damage is not None
    assert "magic 9" in taken.damage


def test_range_inside_one_batch_owns_nothing() -> None:
    first, second, third = ranges(10, cuts=[3, 7])
    log = [batch(0)]
    assert read_whole(first, log).records == 10
    assert (read_whole(second, log).records, read_whole(third, log).records) == (0, 0)


def test_findings_beyond_the_limit_are_counted_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.spark.jobs.range_audit.MAX_FINDINGS", 3)
    log = batches(5)
    for content in log:
        content[-1] ^= 1
    verdict = audited(log, 50)
    assert (len(verdict.findings), verdict.omitted) == (3, 2)
