"""What every storage engine promises, asked of both: segments on a disk and lists in memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from penstock.protocol.batch import read_header
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import Appended, AppendItem, Engine, Origin, PartitionLog
from penstock.storage.errors import (
    CorruptRecords,
    DuplicateSequence,
    InvalidRecords,
    InvalidTimestamp,
    LogFenced,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionExists,
    ProducerFenced,
    RecordTooLarge,
    StorageError,
    UnexpectedOffset,
    UnknownPartition,
)
from penstock.storage.segmented import SegmentedEngine
from penstock.testing.memory_engine import MemoryEngine

PARTITION = TopicPartition("orders", 3)
TOPIC_ID = TopicId(UUID(int=11))
NOW_MS = 1_000_000
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)


class Case:
    """One log of one engine. After every call the order of its offsets is checked."""

    def __init__(self, engine: Engine, config: LogConfig = CONFIG) -> None:
        self.engine = engine
        engine.recover(lambda *, done, total: None, NOW_MS)
        self.log: PartitionLog = engine.create(PARTITION, TOPIC_ID, config, NOW_MS)
        self.epoch = 4

    def check(self) -> None:
        log = self.log
        assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark
        assert log.durable_offset <= log.log_end_offset

    def try_append(
        self, batch: bytes | bytearray, origin: Origin = Origin.CLIENT
    ) -> Appended | StorageError:
        item = AppendItem(self.log, memoryview(bytearray(batch)), LeaderEpoch(self.epoch), origin)
        [result] = self.engine.append([item], NOW_MS)
        self.check()
        return result

    def append(self, batch: bytes | bytearray, origin: Origin = Origin.CLIENT) -> Appended:
        result = self.try_append(batch, origin)
        assert isinstance(result, Appended), result
        return result

    def fill(self, *counts: int) -> None:
        for count in counts:
            self.append(batch_of(count))

    def follow(self, base_offset: int, count: int, epoch: int = 4) -> Appended:
        batch = batch_of(count, base_offset=base_offset, leader_epoch=epoch)
        return self.append(batch, Origin.REPLICA)

    def mark(self, producer_id: int, *, commit: bool, epoch: int = 0) -> Appended:
        marker = build_end_marker_batch(
            commit=commit,
            coordinator_epoch=1,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=NOW_MS,
        )
        return self.append(marker, Origin.COORDINATOR)

    def advance(self, offset: int) -> None:
        self.log.advance_high_watermark(Offset(offset))
        self.check()

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(Offset(offset), NOW_MS)
        self.check()

    def read(
        self, start: int, *, below: int = 2**60, max_bytes: int = 10**6, at_least_one: bool = True
    ) -> list[tuple[int, int]]:
        """The first and last offsets of the batches that one read gives."""
        found, end_offset = self.read_once(start, below, max_bytes, at_least_one)
        assert (end_offset > found[-1][1]) if found else (end_offset == start)
        return found

    def read_once(
        self, start: int, below: int, max_bytes: int, at_least_one: bool
    ) -> tuple[list[tuple[int, int]], int]:
        read = self.log.read(
            Offset(start), below=Offset(below), max_bytes=max_bytes, at_least_one=at_least_one
        )
        content = b"".join(os.pread(s.fd, s.length, s.position) for s in read.slices)
        assert len(content) == read.size_bytes
        read.lease.release()
        found, position = [], 0
        while position < len(content):
            header = read_header(content, position)
            found.append((header.base_offset, header.last_offset))
            position += header.size
        return found, read.end_offset

    def read_all(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        position = int(self.log.log_start_offset)
        while position < self.log.log_end_offset:
            part, end_offset = self.read_once(position, 2**60, 10**6, True)
            if not part:
                break
            assert end_offset > position
            found += part
            position = end_offset
        return found


@pytest.fixture(params=["segmented", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "memory":
        yield MemoryEngine()
        return
    storage = StorageConfig(log_dirs=(str(tmp_path / "logs"),))
    segmented = SegmentedEngine(storage, config_of=lambda topic: CONFIG)
    yield segmented
    segmented.close()


@pytest.fixture
def case(engine: Engine) -> Case:
    return Case(engine)


def batch_of(count: int, *, base_offset: int = 0, **fields: Any) -> bytearray:
    times = fields.pop("times", [NOW_MS] * count)
    records = [
        Record(base_offset + place, time, b"key", b"value" * 5) for place, time in enumerate(times)
    ]
    return build_batch(records, base_offset=base_offset, **fields)


def of_producer(sequence: int, count: int = 1, *, producer_id: int = 7, **fields: Any) -> bytearray:
    fields = {"producer_epoch": 0, **fields}
    return batch_of(count, producer_id=producer_id, base_sequence=sequence, **fields)


# Appending.


def test_offsets_count_records_from_zero(case: Case) -> None:
    assert case.append(batch_of(3)) == (0, 3, -1, False)
    assert case.append(batch_of(2)) == (3, 5, -1, False)
    assert case.log.log_end_offset == 5


def test_stored_batches_bear_their_offset_and_the_leaders_epoch(case: Case) -> None:
    case.fill(3)
    batch = bytearray(batch_of(2))
    item = AppendItem(case.log, memoryview(batch), LeaderEpoch(9), Origin.CLIENT)
    case.engine.append([item], NOW_MS)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (3, 9)
    assert case.log.latest_epoch == 9


def test_one_bad_item_costs_the_others_of_its_request_nothing(case: Case) -> None:
    damaged = batch_of(1)
    damaged[-1] ^= 1
    items = [
        AppendItem(case.log, memoryview(bytearray(batch)), LeaderEpoch(4))
        for batch in (batch_of(2), damaged, batch_of(1))
    ]
    first, bad, last = case.engine.append(items, NOW_MS)
    assert isinstance(bad, CorruptRecords)
    assert (first, last) == (Appended(Offset(0), Offset(2), TimestampMs(-1), False), (2, 3, -1, 0))


def test_what_may_not_be_stored_changes_nothing(case: Case) -> None:
    case.fill(2)
    control = build_end_marker_batch(
        commit=True, coordinator_epoch=1, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS
    )
    refused: list[tuple[bytes | bytearray, type[StorageError]]] = [
        (b"short", CorruptRecords),
        (control, InvalidRecords),
        (batch_of(1) + batch_of(1), InvalidRecords),
        (batch_of(1, times=[NOW_MS + 10**9]), InvalidTimestamp),
        (batch_of(200), StorageError),
    ]
    for batch, error in refused:
        assert isinstance(case.try_append(batch), error)
    assert case.read_all() == [(0, 1)]


def test_batches_above_the_topics_limit_are_too_large(engine: Engine) -> None:
    case = Case(engine, LogConfig(max_message_bytes=100))
    assert isinstance(case.try_append(batch_of(9)), RecordTooLarge)


def test_append_time_stamps_the_batch_and_the_answer(engine: Engine) -> None:
    case = Case(engine, LogConfig(message_timestamp_type="LogAppendTime"))
    assert case.append(batch_of(1, times=[5])).append_time_ms == NOW_MS
    assert case.log.find_max_timestamp() == (0, NOW_MS, 4)


# Following.


def test_a_follower_keeps_offsets_epochs_and_gaps(case: Case) -> None:
    assert case.follow(5, 2, epoch=1) == (5, 7, -1, False)
    case.follow(10, 1, epoch=2)
    assert case.read_all() == [(5, 6), (10, 10)]
    assert case.log.log_end_offset == 11
    assert case.log.find_epoch_end(LeaderEpoch(1)) == (1, 10)


def test_a_follower_leaves_out_a_partial_batch_at_the_end(case: Case) -> None:
    whole = batch_of(2, leader_epoch=0)
    rest = batch_of(2, base_offset=2, leader_epoch=0)[:-3]
    assert case.append(whole + rest, Origin.REPLICA).end_offset == 2


def test_a_follower_refuses_what_does_not_continue_its_log(case: Case) -> None:
    case.follow(0, 3)
    again = batch_of(1, base_offset=2, leader_epoch=4)
    assert isinstance(case.try_append(again, Origin.REPLICA), UnexpectedOffset)
    damaged = batch_of(1, base_offset=3, leader_epoch=4)
    damaged[-1] ^= 1
    assert isinstance(case.try_append(damaged, Origin.REPLICA), CorruptRecords)
    assert isinstance(case.try_append(b"nothing", Origin.REPLICA), InvalidRecords)
    assert case.read_all() == [(0, 2)]


def test_a_followers_append_is_stored_whole_or_not_at_all(case: Case) -> None:
    good = batch_of(1, leader_epoch=4)
    overlapping = batch_of(1, leader_epoch=4)
    assert isinstance(case.try_append(good + overlapping, Origin.REPLICA), UnexpectedOffset)
    assert case.log.log_end_offset == 0


def test_followers_do_not_judge_sequences(case: Case) -> None:
    case.append(of_producer(5, leader_epoch=4), Origin.REPLICA)
    case.append(of_producer(9, base_offset=1, leader_epoch=4), Origin.REPLICA)
    known = case.log.producers.find(7)
    assert known is not None
    assert known.last_sequence == 9


# Reading.


@pytest.mark.parametrize("offset", [3, 4, 5])
def test_a_read_inside_a_batch_gives_the_whole_batch(case: Case, offset: int) -> None:
    case.fill(3, 3, 3)
    assert case.read(offset, max_bytes=1) == [(3, 5)]


def test_a_read_in_a_gap_begins_with_the_next_batch(case: Case) -> None:
    case.follow(0, 1)
    case.follow(9, 1)
    assert case.read(4) == [(9, 9)]


def test_reads_end_below_the_bound_with_a_whole_batch(case: Case) -> None:
    case.fill(2, 2, 2)
    assert case.read(0, below=5) == [(0, 1), (2, 3)]
    assert case.read(0, below=4) == [(0, 1), (2, 3)]
    assert case.read(0, below=1) == []
    assert case.read(4, below=4) == []


def test_reads_take_no_more_bytes_than_asked_for(case: Case) -> None:
    case.fill(1, 1, 1)
    size = len(batch_of(1))
    assert case.read(0, max_bytes=2 * size) == [(0, 0), (1, 1)]
    assert case.read(0, max_bytes=2 * size - 1) == [(0, 0)]
    assert case.read(0, max_bytes=size - 1, at_least_one=False) == []
    assert case.read(0, max_bytes=0) == [(0, 0)]


def test_reads_lead_from_one_to_the_next_through_all_batches(case: Case) -> None:
    counts = [1, 3, 2, 4, 1, 1, 2, 5]
    case.fill(*counts)
    ends = [sum(counts[: place + 1]) for place in range(len(counts))]
    assert case.read_all() == [(e - c, e - 1) for c, e in zip(counts, ends, strict=True)]


def test_reads_outside_of_the_log_say_where_it_is(case: Case) -> None:
    case.fill(4)
    case.advance(4)
    case.log.delete_before(Offset(2))
    assert case.read(4) == []
    for offset in (1, 5):
        with pytest.raises(OffsetOutOfRange) as caught:
            case.read(offset)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (2, 4)


def test_what_was_read_stays_readable_while_the_log_goes_on(case: Case) -> None:
    case.fill(2)
    read = case.log.read(Offset(0), below=Offset(9), max_bytes=10**6, at_least_one=True)
    case.fill(*[3] * 10)
    case.advance(20)
    case.log.delete_before(Offset(20))
    [(fd, position, length)] = read.slices
    assert read_header(os.pread(fd, length, position)).last_offset == 1
    read.lease.release()


# Looking up times and epochs.


def test_times_lead_to_the_first_record_that_is_not_older(case: Case) -> None:
    case.append(batch_of(2, times=[100, 300]))
    case.append(batch_of(2, times=[200, 400]))
    for asked, offset in [(0, 0), (100, 0), (101, 1), (300, 1), (301, 3), (400, 3)]:
        found = case.log.find_by_time(TimestampMs(asked))
        assert found is not None
        assert found.offset == offset
    assert case.log.find_by_time(TimestampMs(401)) is None


def test_the_largest_timestamp_is_found_at_its_first_record(case: Case) -> None:
    assert case.log.find_max_timestamp() is None
    case.append(batch_of(2, times=[100, 300]))
    case.append(batch_of(2, times=[300, 200]))
    assert case.log.find_max_timestamp() == (1, 300, 4)


def test_records_without_a_time_are_never_the_latest(case: Case) -> None:
    case.append(batch_of(1, times=[-1]))
    assert case.log.find_max_timestamp() is None
    case.append(batch_of(1, times=[0]))
    assert case.log.find_max_timestamp() == (1, 0, 4)


def test_deleted_records_are_not_found_by_time(case: Case) -> None:
    case.append(batch_of(3, times=[900, 100, 500]))
    case.append(batch_of(1, times=[50]))
    case.advance(4)
    case.log.delete_before(Offset(1))
    assert case.log.find_max_timestamp() == (2, 500, 4)
    assert case.log.find_by_time(TimestampMs(0)) == (1, 100, 4)


def test_an_epoch_ends_where_the_next_begins(case: Case) -> None:
    case.fill(3)
    case.log.begin_epoch(LeaderEpoch(6))
    assert case.log.latest_epoch == 6
    case.epoch = 6
    case.fill(2)
    for asked, answer in [(4, (4, 3)), (5, (4, 3)), (6, (6, 5)), (3, (3, 0)), (7, None)]:
        assert case.log.find_epoch_end(LeaderEpoch(asked)) == answer


def test_epoch_zero_is_an_epoch(case: Case) -> None:
    case.epoch = 0
    case.fill(2)
    assert case.log.find_epoch_end(LeaderEpoch(0)) == (0, 2)


def test_truncation_forgets_the_epochs_that_began_behind_it(case: Case) -> None:
    case.fill(3)
    case.epoch = 6
    case.fill(2)
    case.truncate(3)
    assert case.log.latest_epoch == 4
    assert case.log.find_epoch_end(LeaderEpoch(4)) == (4, 3)


def test_truncation_to_the_end_forgets_an_epoch_without_batches(case: Case) -> None:
    """Else the batches of the leader that it follows next would contradict it (KIP-101)."""
    case.fill(3)
    case.log.begin_epoch(LeaderEpoch(9))
    case.truncate(3)
    assert case.log.latest_epoch == 4
    case.follow(3, 1, epoch=8)
    assert case.log.find_epoch_end(LeaderEpoch(8)) == (8, 4)


# Watermarks.


def test_the_high_watermark_never_moves_back_nor_past_the_end(case: Case) -> None:
    case.fill(5)
    for asked, reached in [(2, 2), (1, 2), (9, 5), (0, 5)]:
        case.advance(asked)
        assert case.log.high_watermark == reached


def test_truncation_takes_the_watermarks_along(case: Case) -> None:
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


# Changing the log's shape.


@pytest.mark.parametrize(("offset", "end"), [(0, 0), (1, 0), (3, 3), (4, 3), (7, 6), (9, 9)])
def test_truncation_drops_the_batch_that_holds_the_offset(
    case: Case, offset: int, end: int
) -> None:
    case.fill(3, 3, 3)
    case.truncate(offset)
    assert case.log.log_end_offset == end
    assert case.read_all() == [(base, base + 2) for base in range(0, end, 3)]
    assert case.append(batch_of(1)).base_offset == end


def test_truncation_below_the_start_begins_anew(case: Case) -> None:
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


def test_a_restart_forgets_batches_epochs_and_producers(case: Case) -> None:
    case.append(of_producer(0))
    case.log.restart_at(Offset(2**40), NOW_MS)
    case.check()
    log = case.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2**40,) * 3
    assert log.latest_epoch == -1
    assert log.producers.find(7) is None
    assert case.append(batch_of(1)).base_offset == 2**40


def test_a_followers_log_spans_more_than_relative_offsets_can(case: Case) -> None:
    for base_offset in (0, 2**31 - 2, 2**31 + 7, 2**33):
        case.follow(base_offset, 1)
    assert case.read_all() == [(o, o) for o in (0, 2**31 - 2, 2**31 + 7, 2**33)]
    case.truncate(2**33)
    assert case.read_all() == [(o, o) for o in (0, 2**31 - 2, 2**31 + 7)]


# Producers and transactions.


def test_a_batch_sent_again_is_answered_with_its_first_offsets(case: Case) -> None:
    case.fill(2)
    case.append(of_producer(0, 3))
    case.append(of_producer(3))
    assert case.append(of_producer(0, 3)) == (2, 5, -1, True)
    assert case.log.log_end_offset == 6


def test_the_last_five_batches_can_be_sent_again_and_older_ones_are_only_known(case: Case) -> None:
    for sequence in range(7):
        case.append(of_producer(sequence))
    for sequence in range(2, 7):
        assert case.append(of_producer(sequence)).base_offset == sequence
    assert isinstance(case.try_append(of_producer(1)), DuplicateSequence)


def test_sequences_begin_at_zero_and_leave_none_out(case: Case) -> None:
    assert isinstance(case.try_append(of_producer(1)), OutOfOrderSequence)
    case.append(of_producer(0))
    assert isinstance(case.try_append(of_producer(2)), OutOfOrderSequence)
    assert case.log.log_end_offset == 1


def test_a_refused_batch_leaves_the_producers_state_alone(case: Case) -> None:
    case.append(of_producer(0))
    before = case.log.producers.find(7)
    case.try_append(of_producer(9))
    case.try_append(of_producer(1, 200))
    assert case.log.producers.find(7) == before
    case.append(of_producer(1))


def test_a_newer_epoch_fences_the_producers_former_self(case: Case) -> None:
    case.append(of_producer(0, producer_epoch=1))
    assert isinstance(case.try_append(of_producer(1, producer_epoch=0)), ProducerFenced)
    case.append(of_producer(0, producer_epoch=2))


def test_truncation_takes_producers_back_to_what_is_left(case: Case) -> None:
    case.append(of_producer(0))
    case.append(of_producer(1))
    case.append(of_producer(0, producer_id=8))
    case.truncate(1)
    assert case.log.producers.find(8) is None
    assert isinstance(case.try_append(of_producer(2)), OutOfOrderSequence)
    case.append(of_producer(1))


def test_the_last_stable_offset_waits_for_open_transactions(case: Case) -> None:
    case.fill(2)
    case.append(of_producer(0, 2, transactional=True))
    case.fill(2)
    case.advance(6)
    assert case.log.last_stable_offset == 2
    case.mark(7, commit=True)
    assert case.log.last_stable_offset == 2  # the marker may yet be lost
    case.advance(7)
    assert case.log.last_stable_offset == 7


def test_aborted_transactions_are_listed_for_the_offsets_that_they_touch(case: Case) -> None:
    case.append(of_producer(0, 2, transactional=True))
    case.append(of_producer(0, 2, producer_id=8, transactional=True))
    case.mark(7, commit=False)
    case.mark(8, commit=True)
    case.append(of_producer(2, 2, transactional=True))
    case.mark(7, commit=False)
    expected = {(0, 9): [0, 6], (0, 6): [0], (5, 9): [6], (4, 5): [0], (9, 9): []}
    for (start, below), firsts in expected.items():
        found = case.log.aborted(Offset(start), Offset(below))
        assert [entry.first_offset for entry in found] == firsts


def test_truncation_opens_a_transaction_whose_marker_it_takes(case: Case) -> None:
    case.append(of_producer(0, 2, transactional=True))
    case.mark(7, commit=False)
    case.advance(3)
    case.truncate(2)
    assert case.log.aborted(Offset(0), Offset(9)) == []
    assert case.log.last_stable_offset == 0
    case.mark(7, commit=True)
    case.advance(3)
    assert case.log.last_stable_offset == 3


# The engine.


def test_a_flush_is_done_when_the_offset_is_durable(case: Case) -> None:
    case.fill(3)
    answers: list[StorageError | None] = []
    case.engine.flush(case.log, Offset(3), answers.append)
    assert answers == [None]
    assert case.log.durable_offset == 3
    case.engine.flush(case.log, Offset(1), answers.append)
    assert answers == [None, None]


def test_a_partition_is_created_once_and_deleted_once(case: Case) -> None:
    engine = case.engine
    with pytest.raises(PartitionExists):
        engine.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    engine.delete(PARTITION)
    with pytest.raises(UnknownPartition):
        engine.delete(PARTITION)
    assert engine.statistics().logs == ()
    engine.create(PARTITION, TopicId(UUID(int=12)), CONFIG, NOW_MS)


def test_a_deleted_log_takes_nothing_more(case: Case) -> None:
    case.fill(1)
    case.engine.delete(PARTITION)
    assert isinstance(case.try_append(batch_of(1)), LogFenced)
    answers: list[StorageError | None] = []
    case.engine.flush(case.log, Offset(1), answers.append)
    assert isinstance(answers[0], LogFenced)


def test_statistics_say_where_the_log_stands(case: Case) -> None:
    case.fill(2, 2)
    case.append(of_producer(0, transactional=True))
    case.advance(5)
    case.log.delete_before(Offset(1))
    [seen] = case.engine.statistics().logs
    assert seen.partition == PARTITION
    assert (seen.log_start_offset, seen.last_stable_offset) == (1, 4)
    assert (seen.high_watermark, seen.log_end_offset) == (5, 5)
    assert seen.size_bytes == 2 * len(batch_of(2)) + len(of_producer(0, transactional=True))
    assert (seen.producers, seen.fenced) == (1, None)


def test_new_settings_hold_from_the_next_append_on(case: Case) -> None:
    case.log.reconfigure(LogConfig(max_message_bytes=90))
    assert isinstance(case.try_append(batch_of(3)), RecordTooLarge)


def test_jobs_that_are_due_leave_records_alone_that_are_not_old(case: Case) -> None:
    case.fill(*[2] * 9)
    case.advance(18)
    for now_ms in (NOW_MS, NOW_MS + 10**6):
        for job in case.engine.due_jobs(now_ms):
            job.run(lambda function: function())
    case.check()
    assert case.log.log_start_offset == 0
