"""Look-ups by timestamp and by leader epoch."""

from dataclasses import replace

import pytest
from tests.unit.storage.engine.cases import CONFIG, NOW_MS, Case, batch_of, claiming

from penstock.model.ids import LeaderEpoch, Offset, TimestampMs
from penstock.storage.engine import AppendItem, Engine, LogAppendInfo
from penstock.storage.errors import CorruptRecords


def test_look_up_by_time_finds_the_first_record_that_is_not_older(case: Case) -> None:
    case.append(batch_of(2, times=[100, 300]))
    case.append(batch_of(2, times=[200, 400]))
    for timestamp_ms, offset in [(0, 0), (100, 0), (101, 1), (300, 1), (301, 3), (400, 3)]:
        timed = case.log.find_by_time(TimestampMs(timestamp_ms))
        assert timed is not None
        assert timed.offset == offset
    assert case.log.find_by_time(TimestampMs(401)) is None


def test_the_largest_timestamp_is_found_at_its_first_record(case: Case) -> None:
    assert case.log.find_max_timestamp() is None
    case.append(batch_of(2, times=[100, 300]))
    case.append(batch_of(2, times=[300, 200]))
    assert case.log.find_max_timestamp() == (1, 300, 4)


def test_records_without_a_timestamp_are_never_the_latest(case: Case) -> None:
    case.append(batch_of(1, times=[-1]))
    assert case.log.find_max_timestamp() is None
    case.append(batch_of(1, times=[0]))
    assert case.log.find_max_timestamp() == (1, 0, 4)


def test_the_time_of_an_offset_is_that_of_the_first_record_in_its_batch(case: Case) -> None:
    assert case.log.find_time_of(Offset(0)) is None
    case.append(batch_of(2, times=[100, 300]))
    case.append(batch_of(2, times=[200, 400]))
    case.append(batch_of(1, times=[-1]))
    expected = [100, 100, 200, 200, None, None, None]
    assert [case.log.find_time_of(Offset(offset)) for offset in range(7)] == expected


def test_the_time_of_a_deleted_offset_is_that_of_the_next_record(case: Case) -> None:
    case.append(batch_of(1, times=[100]))
    case.append(batch_of(1, times=[200]))
    case.advance(2)
    case.log.delete_before(Offset(1))
    assert case.log.find_time_of(Offset(0)) == 200


def test_the_time_of_an_offset_is_found_in_any_segment(case: Case) -> None:
    times = list(range(1_000, 60_000, 1_000))
    for time_ms in times:
        case.append(batch_of(3, times=[time_ms] * 3))
    times_found_ms = [case.log.find_time_of(Offset(offset)) for offset in range(3 * len(times))]
    assert times_found_ms == [time_ms for time_ms in times for _ in range(3)]


def test_the_time_of_an_offset_is_the_append_time_if_the_topic_has_it(engine: Engine) -> None:
    case = Case(engine, replace(CONFIG, message_timestamp_type="LogAppendTime"))
    append_at(case, 500, batch_of(2, times=[9_000, 1]))
    assert case.log.find_time_of(Offset(1)) == 500


def test_deleted_records_are_not_found_by_time(case: Case) -> None:
    case.append(batch_of(3, times=[900, 100, 500]))
    case.append(batch_of(1, times=[50]))
    case.advance(4)
    case.log.delete_before(Offset(1))
    assert case.log.find_max_timestamp() == (2, 500, 4)
    assert case.log.find_by_time(TimestampMs(0)) == (1, 100, 4)


def test_the_first_batch_appended_after_a_time_is_found_by_its_append_time(engine: Engine) -> None:
    case = Case(engine, replace(CONFIG, message_timestamp_type="LogAppendTime"))
    times = [100, 100, 300, 200, 400, 500, 500, 600]  # set back once
    for now_ms in times:
        append_at(case, now_ms, batch_of(2, times=[9_000, 1]))
    for start in range(2 * len(times)):
        for time in range(50, 650, 50):
            expected = next(
                (
                    (max(2 * index, start), append_ms, 4)
                    for index, append_ms in enumerate(times)
                    if append_ms > time and 2 * index + 1 >= start
                ),
                None,
            )
            assert case.log.find_appended_after(TimestampMs(time), Offset(start)) == expected


def test_producers_times_and_markers_are_no_append_times(engine: Engine) -> None:
    case = Case(engine)
    append_at(case, 100, batch_of(1, times=[90]))
    case.mark(7, commit=True)
    assert case.log.find_appended_after(TimestampMs(0), Offset(0)) is None
    case.log.reconfigure(replace(CONFIG, message_timestamp_type="LogAppendTime"))
    append_at(case, 200, batch_of(1))
    assert case.log.find_appended_after(TimestampMs(0), Offset(0)) == (2, 200, 4)


def append_at(case: Case, now_ms: int, batch: bytearray) -> None:
    item = AppendItem(case.log, memoryview(batch), LeaderEpoch(case.epoch))
    (result,) = case.engine.append([item], now_ms)
    assert isinstance(result, LogAppendInfo), result


def test_segments_with_a_record_after_the_time_are_not_listed(case: Case) -> None:
    case.append(batch_of(2, times=[100, 300]))
    case.append(batch_of(1, times=[200]))
    assert case.log.segment_offsets(before_ms=TimestampMs(299)) == []
    assert case.log.segment_offsets(before_ms=TimestampMs(300)) == [0]
    assert case.log.segment_offsets() == [0]
    case.advance(3)
    case.log.delete_before(Offset(1))
    assert case.log.segment_offsets() == [1]


def test_an_epoch_ends_where_the_next_begins(case: Case) -> None:
    case.fill(3)
    case.log.begin_epoch(LeaderEpoch(6))
    assert case.log.latest_epoch == 6
    case.epoch = 6
    case.fill(2)
    for epoch, answer in [(4, (4, 3)), (5, (4, 3)), (6, (6, 5)), (3, (3, 0)), (7, None)]:
        assert case.log.find_epoch_end(LeaderEpoch(epoch)) == answer


def test_epoch_zero_is_an_epoch(case: Case) -> None:
    case.epoch = 0
    case.fill(2)
    assert case.log.find_epoch_end(LeaderEpoch(0)) == (0, 2)


def test_truncation_drops_the_epochs_that_start_after_it(case: Case) -> None:
    case.fill(3)
    case.epoch = 6
    case.fill(2)
    case.truncate(3)
    assert case.log.latest_epoch == 4
    assert case.log.find_epoch_end(LeaderEpoch(4)) == (4, 3)


def test_truncation_to_the_end_drops_an_epoch_without_batches(case: Case) -> None:
    """Otherwise the next leader's batches would contradict it (KIP-101)."""
    case.fill(3)
    case.log.begin_epoch(LeaderEpoch(9))
    case.truncate(3)
    assert case.log.latest_epoch == 4
    case.follow(3, 1, epoch=8)
    assert case.log.find_epoch_end(LeaderEpoch(8)) == (8, 4)


def test_look_up_by_time_fails_on_records_that_do_not_decode(
    case: Case,
) -> None:
    case.append(claiming(1, b"x" * 10))
    case.fill(1)
    with pytest.raises(CorruptRecords, match="offset 0"):
        case.log.find_by_time(TimestampMs(NOW_MS))
    with pytest.raises(CorruptRecords, match="offset 0"):
        case.log.find_max_timestamp()
    assert case.read_all() == [(0, 0), (1, 1)]
