"""Control batches in place of records that are kept elsewhere: their producer's sequences count,
live, after a restart without snapshots, on a follower and after compaction."""

import pytest
from tests.unit.storage.compacted_logs import FOLDER, Table, iter_batches, make_log

from penstock.model.ids import Offset
from penstock.protocol.batch import read_header
from penstock.protocol.control import build_sequence_batch, read_end_marker
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import OutOfOrderSequence
from penstock.storage.log import SegmentedLog
from penstock.storage.verify import verify_directory
from penstock.testing.simulated_disk import SimulatedDisk

PID = 7
NOW_MS = 1_000


def data(sequence: int, count: int = 1, *, key: bytes = b"k") -> bytearray:
    return build_batch(
        [Record(index, NOW_MS, key, b"%d" % (sequence + index)) for index in range(count)],
        producer_id=PID,
        producer_epoch=0,
        base_sequence=sequence,
    )


def kept_elsewhere(sequence: int, count: int = 1) -> bytearray:
    return build_sequence_batch(read_header(data(sequence, count)), timestamp_ms=NOW_MS)


def append(log: SegmentedLog, batch: bytearray, *, is_control: bool = False) -> tuple[int, bool]:
    """The base offset, and whether the log had the batch already."""
    origin = AppendOrigin.COORDINATOR if is_control else AppendOrigin.CLIENT
    appended = log.append_as_leader(memoryview(batch), 0, origin, NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.durable_offset = log.log_end_offset
    return appended.base_offset, appended.duplicate


def test_the_sequences_and_offsets_are_those_of_the_records() -> None:
    table = Table(cleanup_policy=frozenset({"delete"}))
    assert append(table.log, data(0, 2)) == (0, False)
    assert append(table.log, kept_elsewhere(2, 3), is_control=True) == (2, False)
    assert table.log.log_end_offset == 5
    assert append(table.log, data(5)) == (5, False)
    for log in (table.log, table.reopened()):
        assert append(log, data(0, 2)) == (0, True)
        assert append(log, kept_elsewhere(2, 3), is_control=True) == (2, True)
        assert append(log, data(2, 3)) == (2, True), "the producer's own repeat"
        with pytest.raises(OutOfOrderSequence):
            append(log, data(9))
    assert append(table.reopened(), data(6)) == (6, False)


def test_a_sequence_that_does_not_follow_is_refused() -> None:
    table = Table(cleanup_policy=frozenset({"delete"}))
    append(table.log, data(0))
    with pytest.raises(OutOfOrderSequence):
        append(table.log, kept_elsewhere(5), is_control=True)


def test_a_follower_has_the_same_state() -> None:
    table = Table(cleanup_policy=frozenset({"delete"}))
    append(table.log, data(0))
    append(table.log, kept_elsewhere(1, 2), is_control=True)
    follower = make_log(SimulatedDisk("/data/table-0"), table.config)
    follower.start_at(Offset(0), 0)
    fetched = b"".join(content for _, content in iter_batches(table.log))
    follower.append_as_follower(memoryview(bytearray(fetched)), NOW_MS)
    assert follower.log_end_offset == 3
    assert follower.producers.producers() == table.log.producers.producers()


def test_compaction_keeps_it_only_as_its_producers_last() -> None:
    table = Table()
    append(table.log, kept_elsewhere(0), is_control=True)
    append(table.log, data(1, key=b"a"))
    append(table.log, kept_elsewhere(2, 4), is_control=True)
    table.put((b"b", b"1"))
    table.roll()
    table.put((b"c", b"1"))
    table.compact()
    controls = [header.base_offset for header, _ in table.batches() if header.is_control]
    assert controls == [2]
    log = table.reopened()
    assert append(log, kept_elsewhere(2, 4), is_control=True) == (2, True)
    append(log, data(6, key=b"a"))


def test_compaction_keeps_the_marker_of_a_transaction_whose_records_are_all_elsewhere() -> None:
    """Without it, a follower of the compacted log would see the transaction open for ever."""
    table = Table(delete_retention_ms=0)
    batch = build_batch(
        [Record(0, NOW_MS, b"k", b"v")],
        producer_id=PID,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    elsewhere = build_sequence_batch(read_header(batch), timestamp_ms=NOW_MS)
    append(table.log, elsewhere, is_control=True)
    table.end(PID, commit=True)
    table.put((b"b", b"1"))
    table.roll()
    table.put((b"c", b"1"))
    for _ in range(3):
        table.now_ms += 10_000
        table.compact()
    assert table.reopened().last_stable_offset == table.log.log_end_offset


def test_the_check_of_a_log_counts_its_sequences() -> None:
    """A snapshot at the start of the second segment has the producer's state."""
    table = Table(cleanup_policy=frozenset({"delete"}))
    append(table.log, data(0))
    append(table.log, kept_elsewhere(1, 2), is_control=True)
    table.roll()
    append(table.log, data(3))
    assert [path for path in table.disk.files() if path.endswith("03.snapshot")]
    assert verify_directory(FOLDER, table.disk).problems == []


def test_consumers_see_an_unknown_control_record_and_no_marker() -> None:
    batch = kept_elsewhere(3, 4)
    header = read_header(batch)
    assert header.is_control
    assert not header.is_marker
    assert (header.record_count, header.last_offset_delta, header.last_sequence) == (1, 3, 6)
    assert read_end_marker(batch) is None
    assert [record.offset for record in iter_records(batch)] == [0]
