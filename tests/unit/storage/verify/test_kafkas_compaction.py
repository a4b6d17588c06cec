"""Logs from which Kafka's cleaner has removed whole batches, anywhere: none is a problem.

Our compaction leaves an empty batch at a segment's end; Kafka's leaves nothing there, or an empty
file.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.sample_logs import NOW_MS, Writer, writing
from tests.unit.storage.verify.damage import DATA, FOLDER, locations_of, put, segment_paths, verify

from penstock.model.ids import Offset
from penstock.protocol.batch import (
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    compute_crc,
    iter_headers,
)
from penstock.protocol.records import Record, build_batch
from penstock.storage.producer_snapshot import decode, encode, snapshot_name
from penstock.storage.sparse_index import TIME_INDEX
from penstock.storage.transaction_index import decode_entries, encode_entry
from penstock.testing.simulated_disk import SimulatedDisk

Gone = Callable[[BatchHeader], bool]
PRODUCER = 5


class LogScenario:
    """Writes one log, and rolls a segment where a scenario needs it."""

    def __init__(self, disk: SimulatedDisk, writer: Writer) -> None:
        self._disk = disk
        self.writer = writer
        self._sequence = 0

    def idempotent(self, count: int = 3) -> int:
        records = [Record(i, NOW_MS + i, b"k", b"v" * 50) for i in range(count)]
        sequence, self._sequence = self._sequence, self._sequence + count
        return self.writer.append(
            build_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
        )

    def roll(self) -> int:
        """Append plain records until a segment rolls; return the base offset of the new one."""
        before = len(segment_paths(self._disk))
        offset = 0
        while len(segment_paths(self._disk)) == before:
            offset = self.writer.records(value=b"v" * 300)
        assert f"{FOLDER}/{snapshot_name(offset)}" in self._disk.files()
        return offset


def write(scenario: Callable[[LogScenario], None]) -> SimulatedDisk:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        scenario(LogScenario(disk, writer))
    assert verify(disk).all == []
    put(disk, f"{DATA}/cleaner-offset-checkpoint", b"0\n1\nt 0 1\n")
    return disk


def clean(disk: SimulatedDisk, is_gone: Gone) -> None:
    """Remove batches as Kafka's cleaner does: segments keep their names, even without a batch."""
    for path in segment_paths(disk):
        content, kept, times = disk.files()[path], bytearray(), [(-1, 0)]
        base_offset = base_of(path)
        for position, header in iter_headers(content):
            if not is_gone(header):
                kept += content[position : position + header.size]
                times.append((header.max_timestamp, header.last_offset - base_offset))
        if len(kept) < len(content):
            put(disk, path, bytes(kept))
            put(disk, path.removesuffix(".log") + ".index", b"")
            latest = max(times, key=lambda entry: entry[0])
            put(
                disk,
                path.removesuffix(".log") + TIME_INDEX.suffix,
                TIME_INDEX.entry.pack(*latest) if kept else b"",
            )


def emptied(header: BatchHeader) -> bytes:
    """Return a batch without records, as Kafka keeps a producer's newest one."""
    batch = bytearray(
        HEADER.pack(*header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD, record_count=0))
    )
    batch[CRC_POSITION : CRC_POSITION + 4] = compute_crc(batch).to_bytes(4, "big")
    return bytes(batch)


def base_of(path: str) -> int:
    return int(Path(path).stem)


def of_producer(header: BatchHeader) -> bool:
    return header.producer_id == PRODUCER


# -- snapshots -----------------------------------------------------------------------------


def three_segments(scenario: LogScenario) -> None:
    """A producer writes at the start of each of three segments, with plain records between."""
    for _ in range(3):
        scenario.idempotent()
        scenario.idempotent()
        scenario.roll()
    scenario.idempotent()


def second_base(disk: SimulatedDisk) -> int:
    return base_of(segment_paths(disk)[1])


GONE: dict[str, Callable[[int], Gone]] = {
    "everything before the second segment": lambda base: lambda h: h.last_offset < base,
    "everything before the middle of it": lambda base: lambda h: h.last_offset < base + 6,
    "the end of the first segment": lambda base: lambda h: 3 <= h.base_offset < base,
    "the front of the first segment": lambda base: lambda h: h.base_offset < 6,
    "the producer's batches": lambda base: of_producer,
    "the producer's first batch": lambda base: lambda h: h.base_offset == 0,
    "the producer's later batches": lambda base: lambda h: of_producer(h) and h.base_offset > 0,
    "the ends of all segments": lambda base: lambda h: not of_producer(h),
    "everything": lambda base: lambda h: True,
}


@pytest.mark.parametrize("gone", GONE)
def test_a_snapshot_may_have_producers_that_were_compacted_away(gone: str) -> None:
    disk = write(three_segments)
    active = base_of(segment_paths(disk)[-1])
    is_gone = GONE[gone](second_base(disk))
    clean(disk, lambda header: header.last_offset < active and is_gone(header))
    assert verify(disk).problems == []


def test_a_snapshot_at_the_end_may_have_producers_that_were_compacted_away() -> None:
    """The active segment is empty, so the log ends with a gap."""

    def scenario(scenario: LogScenario) -> None:
        scenario.idempotent()
        scenario.writer.log.truncate_to(Offset(scenario.roll()), NOW_MS)

    disk = write(scenario)
    assert disk.files()[segment_paths(disk)[-1]] == b""
    assert base_of(segment_paths(disk, ".snapshot")[-1]) == base_of(segment_paths(disk)[-1])
    clean(disk, lambda header: True)
    assert verify(disk).problems == []


def test_a_snapshot_may_have_more_than_an_empty_batch_shows() -> None:
    disk = write(three_segments)
    path = segment_paths(disk)[0]
    _, header = next(iter_headers(disk.files()[path]))
    clean(disk, lambda other: of_producer(other) and 0 < other.base_offset < second_base(disk))
    put(disk, path, emptied(header) + disk.files()[path][header.size :])
    assert verify(disk).problems == []


def test_a_snapshot_before_the_first_gap_is_still_compared() -> None:
    disk = write(three_segments)
    base_offset = second_base(disk)
    path = f"{FOLDER}/{snapshot_name(base_offset)}"
    (entry,) = decode(disk.files()[path])
    put(disk, path, encode([entry._replace(last_offset=Offset(entry.last_offset - 1))]))
    clean(disk, lambda header: header.base_offset == base_offset)
    assert locations_of(verify(disk)) == {("snapshot", path, None)}


# -- transactions --------------------------------------------------------------------------


def committed_then_aborted(scenario: LogScenario) -> None:
    """Producer 1 has committed records at 0, and aborted ones after them."""
    writer = scenario.writer
    writer.transactional(1)
    writer.end(1, commit=True)
    writer.transactional(1)
    writer.end(1, commit=False)
    scenario.roll()


def is_at(*offsets: int) -> Gone:
    return lambda header: header.base_offset in offsets


def test_a_commit_marker_that_was_compacted_away_does_not_extend_the_next_transaction() -> None:
    """Kafka keeps the records and removes the marker once its delete horizon has passed."""
    disk = write(committed_then_aborted)
    (path,) = segment_paths(disk, ".txnindex")
    (entry,) = decode_entries(disk.files()[path])
    assert (entry.first_offset, entry.last_offset) == (3, 5)
    clean(disk, is_at(2))
    assert verify(disk).problems == []


def test_an_abort_whose_records_are_gone_needs_no_entry_after_a_lost_commit_marker() -> None:
    disk = write(committed_then_aborted)
    disk.remove(*segment_paths(disk, ".txnindex"))
    clean(disk, is_at(2, 3))
    assert verify(disk).problems == []


def test_an_abort_with_its_records_needs_an_entry_after_a_gap_too() -> None:
    disk = write(committed_then_aborted)
    (path,) = segment_paths(disk, ".txnindex")
    disk.remove(path)
    clean(disk, is_at(2))
    assert locations_of(verify(disk)) == {("transaction-index", path, 0)}


def test_an_entry_that_starts_after_its_records_is_reported_after_a_gap_too() -> None:
    def scenario(scenario: LogScenario) -> None:
        scenario.idempotent()
        scenario.writer.transactional(1)
        scenario.writer.end(1, commit=False)
        scenario.roll()

    disk = write(scenario)
    (path,) = segment_paths(disk, ".txnindex")
    (entry,) = decode_entries(disk.files()[path])
    put(disk, path, encode_entry(entry._replace(first_offset=Offset(entry.first_offset + 1))))
    clean(disk, is_at(0))
    assert locations_of(verify(disk)) == {("transaction-index", path, 0)}


def test_an_abort_of_records_below_the_log_start_needs_no_entry() -> None:
    """Retention deleted the records; then Kafka's cleaner drops the entry and keeps the marker."""
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        scenario = LogScenario(disk, writer)
        writer.transactional(1)
        start = scenario.roll()
        writer.end(1, commit=False)
        scenario.roll()
        writer.log.delete_before(Offset(start))
        writer.engine.due_jobs(NOW_MS)
        for job in writer.engine.due_jobs(NOW_MS + 3_600_000):
            job.run(lambda function: function())
    assert second_base(disk) > start == base_of(segment_paths(disk)[0])
    (path,) = segment_paths(disk, ".txnindex")
    disk.remove(path)
    assert verify(disk).problems == []


# -- gaps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("leftover", [".deleted", ".swap", ".cleaned"])
def test_a_gap_is_a_note_after_an_interrupted_cleaner_pass(leftover: str) -> None:
    """Kafka writes the cleaner checkpoint only when a pass has ended."""
    disk = write(three_segments)
    disk.remove(f"{DATA}/cleaner-offset-checkpoint")
    base_offset = second_base(disk)
    clean(disk, lambda header: 3 <= header.base_offset < base_offset)
    assert ("gap", segment_paths(disk)[0], None) in locations_of(verify(disk))
    put(disk, f"{segment_paths(disk)[1]}{leftover}", b"")
    assert verify(disk).problems == []


def test_leftovers_of_retention_do_not_explain_a_gap() -> None:
    disk = write(three_segments)
    disk.remove(f"{DATA}/cleaner-offset-checkpoint")
    for path in segment_paths(disk):
        if base_of(path) == 0:
            put(disk, f"{path}.deleted", b"")
            disk.remove(path)
            disk.remove(path.removesuffix(".log") + ".index")
            disk.remove(path.removesuffix(".log") + ".timeindex")
    base_offset, following = map(base_of, segment_paths(disk)[:2])
    clean(disk, lambda header: base_offset + 3 <= header.base_offset < following)
    assert ("gap", segment_paths(disk)[0], None) in locations_of(verify(disk))
