"""High watermark, truncation and restarts."""

import pytest
from tests.unit.storage.engine.cases import NOW_MS, Case, batch_of, of_producer

from penstock.model.ids import Offset
from penstock.storage.errors import (
    OffsetOutOfRange,
)


def test_the_high_watermark_never_moves_back_nor_past_the_end(case: Case) -> None:
    case.fill(5)
    for offset, reached in [(2, 2), (1, 2), (9, 5), (0, 5)]:
        case.advance(offset)
        assert case.log.high_watermark == reached


def test_truncation_lowers_high_watermark_and_durable_offset(case: Case) -> None:
    case.fill(2, 2, 2)
    case.advance(6)
    case.engine.flush(case.log, Offset(6), lambda error: None)
    case.truncate(3)
    assert (case.log.log_end_offset, case.log.high_watermark, case.log.durable_offset) == (2, 2, 2)


def test_records_above_the_high_watermark_cannot_be_deleted(case: Case) -> None:
    case.fill(4)
    case.advance(2)
    for offset in (3, -1):
        with pytest.raises(OffsetOutOfRange):
            case.log.delete_before(Offset(offset))
    case.log.delete_before(Offset(2))
    case.log.delete_before(Offset(1))
    case.check()
    assert case.log.log_start_offset == 2


@pytest.mark.parametrize(("offset", "end"), [(0, 0), (1, 0), (3, 3), (4, 3), (7, 6), (9, 9)])
def test_truncation_drops_the_batch_that_contains_the_offset(
    case: Case, offset: int, end: int
) -> None:
    case.fill(3, 3, 3)
    case.truncate(offset)
    assert case.log.log_end_offset == end
    assert case.read_all() == [(base, base + 2) for base in range(0, end, 3)]
    assert case.append(batch_of(1)).base_offset == end


def test_truncation_below_the_log_start_restarts_the_log(case: Case) -> None:
    case.fill(3, 3)
    case.advance(6)
    case.log.delete_before(Offset(4))
    case.truncate(2)
    assert (case.log.log_start_offset, case.log.log_end_offset) == (2, 2)


def test_truncation_to_a_deleted_part_of_a_batch_leaves_an_empty_log(case: Case) -> None:
    case.fill(3, 3)
    case.advance(6)
    case.log.delete_before(Offset(4))
    case.truncate(5)
    assert case.log.log_end_offset <= 4
    assert case.read_all() == []
    assert case.append(batch_of(1)).base_offset == case.log.log_end_offset - 1


def test_truncation_in_a_gap_ends_the_log_where_its_last_batch_ends(case: Case) -> None:
    case.follow(0, 3)
    case.follow(8, 2)
    case.truncate(6)
    assert case.log.log_end_offset == 3


def test_a_restarted_log_drops_batches_epochs_and_producers(case: Case) -> None:
    case.append(of_producer(0))
    case.log.restart_at(Offset(2**40), NOW_MS)
    case.check()
    log = case.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2**40,) * 3
    assert log.latest_epoch == -1
    assert log.producers.find(7) is None
    assert case.append(batch_of(1)).base_offset == 2**40


def test_a_followers_log_may_span_more_than_relative_offsets_can_express(case: Case) -> None:
    for base_offset in (0, 2**31 - 2, 2**31 + 7, 2**33):
        case.follow(base_offset, 1)
    assert case.read_all() == [(o, o) for o in (0, 2**31 - 2, 2**31 + 7, 2**33)]
    case.truncate(2**33)
    assert case.read_all() == [(o, o) for o in (0, 2**31 - 2, 2**31 + 7)]
