"""Every kind of inconsistency, planted in a data directory that is clean without it."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.profile import scaled
from tests.unit.storage.sample_logs import NOW_MS, SMALL, Writer, fill, open_engine, writing

from penstock.model.ids import LeaderEpoch, Offset
from penstock.protocol.batch import (
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH_POSITION,
    RECORD_COUNT_POSITION,
    compute_crc,
    iter_headers,
)
from penstock.storage.checkpoints import decode_offsets, encode_offsets
from penstock.storage.epochs import EpochEntry, decode_epochs, encode_epochs
from penstock.storage.findings import Finding, Findings
from penstock.storage.producer_snapshot import decode, encode
from penstock.storage.transaction_index import ENTRY_BYTES, decode_entries, encode_entry
from penstock.storage.verify import NotALog, count_log_bytes, verify_directory
from penstock.testing.simulated_disk import KeepEverything, LoseEverything, SimulatedDisk

DATA = "/data"
FOLDER = "/data/t-0"
EPOCHS = f"{FOLDER}/leader-epoch-checkpoint"


@pytest.fixture(scope="module")
def sample() -> SimulatedDisk:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        fill(writer)
    return disk


@pytest.fixture
def disk(sample: SimulatedDisk) -> SimulatedDisk:
    return sample.copy()


def segment_paths(disk: SimulatedDisk, suffix: str = ".log") -> list[str]:
    return sorted(path for path in disk.files() if path.endswith(suffix))


def sealed(disk: SimulatedDisk, suffix: str = ".log") -> str:
    """A segment in the middle of the log, with an aborted transaction."""
    log = segment_paths(disk)[2]
    assert log.removesuffix(".log") + ".txnindex" in disk.files()
    return log.removesuffix(".log") + suffix


def active(disk: SimulatedDisk, suffix: str = ".log") -> str:
    return segment_paths(disk)[-1].removesuffix(".log") + suffix


def positions(disk: SimulatedDisk, path: str) -> list[int]:
    return [position for position, _ in iter_headers(disk.files()[path])]


def put(disk: SimulatedDisk, path: str, content: bytes) -> None:
    """Make the file hold just this."""
    if path in disk.files():
        disk.cut(path, 0)
    descriptor = disk.open(path, 0o2102)  # O_RDWR | O_CREAT | O_APPEND
    disk.write(descriptor, content)
    disk.close(descriptor)


def flip(disk: SimulatedDisk, path: str, position: int, bit: int = 0) -> None:
    disk.flip_bit(path, position * 8 + bit)


def verify(disk: SimulatedDisk, path: str = DATA, *, records: bool = False) -> Findings:
    before = disk.files()
    findings = verify_directory(path, disk, records=records)
    assert disk.files() == before, "a check changes nothing"
    assert disk.open_descriptors == 0
    return findings


def only_problem(disk: SimulatedDisk, *, records: bool = False) -> Finding:
    problems = verify(disk, records=records).problems
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def found(findings: Findings) -> set[tuple[str, str, int | None]]:
    return {(item.kind, item.path, item.position) for item in findings.problems}


# -- what is clean ---------------------------------------------------------------------------


def test_a_log_with_all_codecs_epochs_and_transactions_is_clean(disk: SimulatedDisk) -> None:
    findings = verify(disk, records=True)
    assert findings.all == []
    logs = [content for path, content in disk.files().items() if path.endswith(".log")]
    headers = [header for content in logs for _, header in iter_headers(content)]
    assert findings.batches == len(headers)
    assert findings.records == sum(header.record_count for header in headers)
    assert findings.files == len(disk.files()) - len([".lock", ".kafka_cleanshutdown"])


def test_a_partition_folder_is_checked_by_itself(disk: SimulatedDisk) -> None:
    whole, alone = verify(disk), verify(disk, FOLDER)
    assert alone.all == []
    assert alone.batches == whole.batches


def test_records_are_counted_only_where_they_are_decoded(disk: SimulatedDisk) -> None:
    assert verify(disk).records == 0


def test_a_log_in_use_is_clean_at_every_step() -> None:
    disk = SimulatedDisk(DATA)
    writer = Writer(open_engine(DATA, disk=disk))
    for _ in range(12):
        writer.records()
        writer.transactional(1)
        assert verify_directory(DATA, disk).problems == []
        writer.end(1, commit=False)
        assert verify_directory(DATA, disk).problems == []
    writer.epoch += 1
    writer.records()
    assert verify_directory(DATA, disk).problems == []


def test_a_log_that_grows_while_it_is_read_is_no_contradiction() -> None:
    disk = SimulatedDisk(DATA)
    writer = Writer(open_engine(DATA, disk=disk))
    fill(writer)

    def append(_: int) -> None:
        writer.transactional(3)
        writer.records()
        writer.end(3, commit=False)

    findings = verify_directory(DATA, disk, progress=append)
    assert findings.problems == []


def test_recovery_after_a_kill_leaves_a_clean_log() -> None:
    disk = SimulatedDisk(DATA)
    fill(Writer(open_engine(DATA, disk=disk)))
    survivor = disk.survivor_of_kill()
    with writing(DATA, disk=survivor) as writer:
        assert writer.log.log_end_offset > 100
        writer.records()
    assert verify(survivor, records=True).all == []


@pytest.mark.parametrize("choice", [LoseEverything(), KeepEverything()])
def test_recovery_after_a_power_cut_leaves_a_clean_log(
    choice: LoseEverything | KeepEverything,
) -> None:
    disk = SimulatedDisk(DATA)
    writer = Writer(open_engine(DATA, disk=disk))
    fill(writer)
    writer.engine.flush(writer.log, writer.log.log_end_offset, lambda error: None)
    writer.records()
    survivor = disk.survivor_of_power_cut(choice)
    with writing(DATA, disk=survivor):
        pass
    assert verify(survivor).all == []


@pytest.mark.parametrize("offset", [170, 169, 120, 115, 60, 1, 0])
def test_a_truncated_log_is_clean(offset: int) -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        fill(writer)
        writer.log.truncate_to(Offset(offset), NOW_MS)
        assert verify_directory(DATA, disk).problems == []
        writer.records()
    assert verify(disk).all == []


def test_a_log_after_retention_is_clean() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        fill(writer)
        writer.log.delete_before(Offset(100))
        writer.engine.due_jobs(NOW_MS)
        for job in writer.engine.due_jobs(NOW_MS + 3_600_000):
            job.run(lambda function: function())
    assert min(segment_paths(disk)).endswith("00000000000000000093.log")
    assert verify(disk).all == []


def test_a_log_that_was_restarted_further_on_is_clean() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        fill(writer)
        writer.log.restart_at(Offset(5000), NOW_MS)
        fill(Writer(writer.engine))
    assert verify(disk).all == []


def test_a_compacted_log_is_clean() -> None:
    disk = SimulatedDisk(DATA)
    config = replace(SMALL, cleanup_policy=frozenset({"compact"}))
    with writing(DATA, config, disk) as writer:
        fill(writer)
        before = writer.log.statistics().size_bytes
        for now_ms in (NOW_MS, NOW_MS + 86_400_000, NOW_MS + 10 * 86_400_000):
            for job in writer.engine.due_jobs(now_ms):
                job.run(lambda function: function())
            assert verify_directory(DATA, disk, records=True).problems == []
        assert writer.log.statistics().size_bytes < before // 2
    assert verify(disk, records=True).problems == []


def test_an_empty_log_and_an_empty_directory_are_clean() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk):
        pass
    assert verify(disk).all == []
    empty = SimulatedDisk(DATA)
    open_engine(DATA, disk=empty).close()
    assert verify(empty).all == []


def test_timestamps_of_zero_make_a_time_entry_of_zeros() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        writer.records(1, timestamp_ms=0)
    assert disk.files()[active(disk, ".timeindex")] == bytes(12)
    assert verify(disk).all == []


def test_a_folder_that_holds_no_log_is_refused() -> None:
    with pytest.raises(NotALog, match="/other is neither"):
        verify_directory("/other", SimulatedDisk("/other"))


# -- the log file ----------------------------------------------------------------------------


def test_a_flipped_bit_in_the_records_is_a_crc_problem_and_reading_goes_on(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk)
    batches = verify(disk).batches
    second, third = positions(disk, path)[1:3]
    flip(disk, path, third - 1)
    findings = verify(disk)
    assert found(findings) == {("crc", path, second)}
    assert findings.batches == batches


def test_two_bad_batches_are_two_problems(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    first, second, third = positions(disk, path)[:3]
    flip(disk, path, first + 25)
    flip(disk, path, third - 1)
    assert found(verify(disk)) == {("crc", path, first), ("crc", path, second)}


def test_a_torn_tail_is_reported_where_the_last_whole_batch_ends(disk: SimulatedDisk) -> None:
    path = active(disk)
    last = positions(disk, path)[-1]
    disk.cut(path, len(disk.files()[path]) - 1)
    assert ("torn-tail", path, last) in found(verify(disk))


@pytest.mark.parametrize("kept", [1, 16, 17, 60])
def test_a_tail_too_short_for_a_header_is_torn(disk: SimulatedDisk, kept: int) -> None:
    path = active(disk)
    last = positions(disk, path)[-1]
    disk.cut(path, last + kept)
    assert ("torn-tail", path, last) in found(verify(disk))


def test_behind_an_unreadable_header_the_index_shows_where_to_go_on(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    starts = positions(disk, path)
    indexed = [e[1] for e in struct.iter_unpack(">II", disk.files()[sealed(disk, ".index")])]
    damaged = starts[0]
    resumed = min(position for position in indexed if position > damaged)
    batches = verify(disk).batches
    disk.overwrite(path, damaged + 16, b"\x07")  # magic
    findings = verify(disk)
    (problem,) = findings.problems
    assert (problem.kind, problem.path, problem.position) == ("damage", path, damaged)
    assert "magic 7" in problem.message
    assert f"{resumed - damaged} bytes up to {resumed}" in problem.message
    assert findings.batches == batches - len([p for p in starts if damaged <= p < resumed])


def test_an_offset_that_goes_back_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    content = disk.files()[path]
    place = positions(disk, path)[2]
    base_offset = HEADER.unpack_from(content, place)[0]
    disk.overwrite(path, place, struct.pack(">q", base_offset - 1))
    kinds = found(verify(disk))
    assert ("offset-order", path, place) in kinds
    assert all(item[0] != "crc" for item in kinds)


def test_an_offset_that_jumps_is_reported_at_the_batch_that_contradicts_it(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk)
    place, following = positions(disk, path)[2:4]
    flip(disk, path, place + 4)  # 2^24 more
    problems = found(verify(disk))
    assert ("offset-order", path, following) in problems
    assert ("bounds", path, place) in problems


def test_a_batch_before_its_segment_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    disk.overwrite(path, 0, struct.pack(">q", 3))
    assert ("bounds", path, 0) in found(verify(disk))


def test_a_batch_too_far_for_the_index_is_reported(disk: SimulatedDisk) -> None:
    path = active(disk)
    last = positions(disk, path)[-1]
    flip(disk, path, last + 3)  # 2^32 more
    assert ("bounds", path, last) in found(verify(disk))


def test_overlapping_segments_are_reported(disk: SimulatedDisk) -> None:
    first, second = segment_paths(disk)[:2]
    place = positions(disk, second)[0]
    base_offset = HEADER.unpack_from(disk.files()[second], place)[0]
    longer = disk.files()[first] + disk.files()[second][: positions(disk, second)[1]]
    put(disk, first, longer)
    problems = [item for item in verify(disk).problems if item.kind == "bounds"]
    assert [(item.path, item.position) for item in problems] == [
        (first, len(longer) - positions(disk, second)[1])
    ]
    assert f"the next segment's first, {base_offset}: they overlap" in problems[0].message


def test_a_sane_crc_over_an_impossible_header_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    start, end = positions(disk, path)[:2]
    batch = bytearray(disk.files()[path][start:end])
    batch[RECORD_COUNT_POSITION : RECORD_COUNT_POSITION + 4] = struct.pack(">i", 1000)
    batch[CRC_POSITION : CRC_POSITION + 4] = struct.pack(">I", compute_crc(batch))
    disk.overwrite(path, start, bytes(batch))
    assert ("header", path, start) in found(verify(disk))


def test_records_that_do_not_decode_are_found_only_when_they_are_looked_at(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk)
    start, end = positions(disk, path)[:2]
    batch = bytearray(disk.files()[path][start:end])
    batch[HEADER_BYTES] ^= 0x40  # the first record's length
    batch[CRC_POSITION : CRC_POSITION + 4] = struct.pack(">I", compute_crc(batch))
    disk.overwrite(path, start, bytes(batch))
    assert verify(disk).problems == []
    problem = only_problem(disk, records=True)
    assert (problem.kind, problem.path, problem.position) == ("records", path, start)


def test_a_missing_segment_leaves_a_gap_that_is_noted(disk: SimulatedDisk) -> None:
    first, second, third = segment_paths(disk)[:3]
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path = second.removesuffix(".log") + suffix
        if path in disk.files():
            disk.remove(path)
    gaps = [note for note in verify(disk).notes if note.kind == "gap"]
    assert [note.path for note in gaps] == [first]
    begin, end = (int(Path(path).stem) for path in (second, third))
    assert f"offsets {begin} to {end - 1}" in gaps[0].message


# -- indexes ---------------------------------------------------------------------------------


def test_an_index_entry_whose_offset_is_wrong_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".index")
    flip(disk, path, 8 + 3)
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.position) == ("offset-index", path, 8)


def test_an_index_entry_for_several_batches_is_a_note_as_kafkas_followers_write_them(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk, ".index")
    entries = disk.files()[path]
    (_, first_position), *_, (last_offset, _) = struct.iter_unpack(">II", entries)
    put(disk, path, struct.pack(">II", last_offset, first_position))
    findings = verify(disk)
    assert findings.problems == []
    assert [(note.kind, note.path, note.position) for note in findings.notes] == [
        ("offset-index", path, 0)
    ]


@pytest.mark.parametrize("change", [-1, 1])
def test_an_index_entry_that_names_no_batchs_last_offset_is_reported(
    disk: SimulatedDisk, change: int
) -> None:
    path = sealed(disk, ".index")
    offset, position = struct.unpack_from(">II", disk.files()[path])
    disk.overwrite(path, 0, struct.pack(">II", offset + change, position))
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.position) == ("offset-index", path, 0)


def test_an_index_entry_that_points_into_a_batch_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".index")
    flip(disk, path, 8 + 7)
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.position) == ("offset-index", path, 8)
    assert "no batch begins there" in problem.message


def test_an_index_entry_beyond_the_log_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".index")
    entries = disk.files()[path]
    put(disk, path, entries + struct.pack(">II", 10_000, 100_000))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, len(entries))
    assert "points at position 100000" in problem.message


@pytest.mark.parametrize(("suffix", "width"), [(".index", 8), (".timeindex", 12)])
def test_entries_that_do_not_increase_are_reported(
    disk: SimulatedDisk, suffix: str, width: int
) -> None:
    path = sealed(disk, suffix)
    entries = disk.files()[path]
    put(disk, path, entries + entries[-width:])
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, len(entries))
    assert "does not follow" in problem.message


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_ends_mid_entry_is_reported(disk: SimulatedDisk, suffix: str) -> None:
    for path in (sealed(disk, suffix), active(disk, suffix)):
        damaged = disk.copy()
        entries = disk.files()[path]
        put(damaged, path, entries + b"\x01\x02\x03")
        problem = only_problem(damaged)
        assert (problem.path, problem.position) == (path, len(entries))
        assert "ends mid-entry (3 bytes)" in problem.message


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_zeros_behind_the_entries_are_a_note_in_the_active_segment_only(
    disk: SimulatedDisk, suffix: str
) -> None:
    path = active(disk, suffix)
    size = len(disk.files()[path])
    put(disk, path, disk.files()[path] + bytes(240))
    findings = verify(disk)
    assert findings.problems == []
    assert [(note.kind, note.path, note.position) for note in findings.notes] == [
        ("zeros", path, size)
    ]
    path = sealed(disk, suffix)
    size = len(disk.files()[path])
    put(disk, path, disk.files()[path] + bytes(240))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, size)


def test_a_time_entry_that_its_batch_contradicts_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".timeindex")
    flip(disk, path, 7)
    problems = found(verify(disk))
    assert ("time-index", path, 0) in problems
    assert {item[1] for item in problems} == {path}


def test_a_time_entry_of_an_offset_beyond_the_segment_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".timeindex")
    size = len(disk.files()[path])
    put(disk, path, disk.files()[path] + struct.pack(">qI", 2**60, 10_000))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, size)
    assert "behind the last one" in problem.message


def test_a_time_entry_below_an_earlier_maximum_is_reported() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, SMALL, disk) as writer:
        writer.records(1, timestamp_ms=2000)
        second = writer.records(1, timestamp_ms=1000)
    path = active(disk, ".timeindex")
    assert disk.files()[path] == struct.pack(">qI", 2000, 0)
    put(disk, path, struct.pack(">qIqI", 1000, second, 2000, second))
    problems = verify(disk).problems
    assert any("timestamp 1000 after one of 2000" in item.message for item in problems)


@pytest.mark.parametrize("where", [sealed, active])
def test_a_time_index_without_its_last_entry_is_reported(
    disk: SimulatedDisk, where: Callable[[SimulatedDisk, str], str]
) -> None:
    path = where(disk, ".timeindex")
    size = len(disk.files()[path]) - 12
    disk.cut(path, size)
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.position) == ("time-index", path, size)
    assert "but the segment holds" in problem.message


def test_while_the_broker_runs_the_active_time_index_may_lag(disk: SimulatedDisk) -> None:
    disk.remove(f"{DATA}/.kafka_cleanshutdown")
    disk.cut(active(disk, ".timeindex"), 0)
    assert verify(disk).problems == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_sealed_segment_without_an_index_is_reported(disk: SimulatedDisk, suffix: str) -> None:
    path = sealed(disk, suffix)
    disk.remove(path)
    assert ("missing", path, None) in found(verify(disk))


# -- transactions and producers --------------------------------------------------------------


def test_an_abort_missing_from_the_transaction_index_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".txnindex")
    (entry, *_) = decode_entries(disk.files()[path])
    disk.remove(path)
    problem = verify(disk).problems[0]
    assert (problem.kind, problem.path, problem.position) == ("transaction-index", path, 0)
    assert f"producer {entry.producer_id} at offset {entry.last_offset}" in problem.message


def test_an_abort_that_never_was_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".txnindex")
    entries = decode_entries(disk.files()[path])
    extra = entries[-1]._replace(last_offset=Offset(entries[-1].last_offset + 1))
    put(disk, path, b"".join(map(encode_entry, [*entries, extra])))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, len(entries) * ENTRY_BYTES)
    assert "no abort marker" in problem.message


@pytest.mark.parametrize("field", ["producer_id", "first_offset", "last_stable_offset"])
def test_an_abort_with_a_wrong_field_is_reported(disk: SimulatedDisk, field: str) -> None:
    path = sealed(disk, ".txnindex")
    (entry, *rest) = decode_entries(disk.files()[path])
    wrong = entry._replace(**{field: getattr(entry, field) + 1})
    put(disk, path, b"".join(map(encode_entry, [wrong, *rest])))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, 0)


def test_a_transaction_index_that_does_not_decode_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".txnindex")
    size = len(disk.files()[path])
    put(disk, path, disk.files()[path] + b"\x00")
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, size)
    assert "ends mid-entry" in problem.message


def test_a_damaged_snapshot_is_reported(disk: SimulatedDisk) -> None:
    path = segment_paths(disk, ".snapshot")[-1]
    flip(disk, path, 20)
    problem = only_problem(disk)
    assert (problem.kind, problem.path) == ("snapshot", path)
    assert "CRC" in problem.message


def test_a_snapshot_that_a_broker_is_writing_is_a_note(disk: SimulatedDisk) -> None:
    disk.remove(f"{DATA}/.kafka_cleanshutdown")
    oldest, *_, newest = segment_paths(disk, ".snapshot")
    disk.cut(newest, 0)
    findings = verify(disk)
    assert findings.problems == []
    assert [(note.kind, note.path) for note in findings.notes] == [("snapshot", newest)]
    disk.cut(oldest, 0)
    assert found(verify(disk)) == {("snapshot", oldest, None)}


@pytest.mark.parametrize("field", ["last_sequence", "last_offset", "producer_epoch", "producer_id"])
def test_a_snapshot_that_contradicts_the_log_is_reported(disk: SimulatedDisk, field: str) -> None:
    path = segment_paths(disk, ".snapshot")[3]
    (entry, *rest) = decode(disk.files()[path])
    wrong = entry._replace(**{field: getattr(entry, field) + 100})
    put(disk, path, encode([wrong, *rest]))
    problem = only_problem(disk)
    assert (problem.kind, problem.path) == ("snapshot", path)
    assert str(wrong) in problem.message


def test_a_snapshot_beyond_the_log_is_reported(disk: SimulatedDisk) -> None:
    path = f"{FOLDER}/{9999:020d}.snapshot"
    put(disk, path, encode([]))
    problem = only_problem(disk)
    assert (problem.kind, problem.path) == ("snapshot", path)


# -- epochs and checkpoints ------------------------------------------------------------------


def test_a_flipped_epoch_is_found_by_its_neighbours_and_the_checkpoint(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    place, following = positions(disk, path)[1:3]
    flip(disk, path, place + LEADER_EPOCH_POSITION + 2)
    assert found(verify(disk)) == {("epoch", path, place), ("epoch-order", path, following)}


def test_batches_that_contradict_the_epoch_checkpoint_are_reported(disk: SimulatedDisk) -> None:
    first, second, *rest = decode_epochs(disk.files()[EPOCHS], EPOCHS)
    later = EpochEntry(second.epoch, Offset(second.start_offset + 1))
    put(disk, EPOCHS, encode_epochs([first, later, *rest]))
    problem = only_problem(disk)
    assert problem.kind == "epoch"
    header = HEADER.unpack_from(disk.files()[problem.path], problem.position or 0)
    assert header[0] == second.start_offset


def test_an_epoch_that_the_checkpoint_lacks_is_a_problem_after_a_clean_stop(
    disk: SimulatedDisk,
) -> None:
    entries = decode_epochs(disk.files()[EPOCHS], EPOCHS)
    put(disk, EPOCHS, encode_epochs(entries[:-1]))
    assert only_problem(disk).kind == "epoch"
    disk.remove(f"{DATA}/.kafka_cleanshutdown")
    findings = verify(disk)
    assert findings.problems == []
    assert [note.kind for note in findings.notes] == ["epoch"]


def test_an_epoch_that_begins_beyond_the_log_is_reported(disk: SimulatedDisk) -> None:
    entries = decode_epochs(disk.files()[EPOCHS], EPOCHS)
    put(disk, EPOCHS, encode_epochs([*entries, EpochEntry(LeaderEpoch(9), Offset(9999))]))
    problem = only_problem(disk)
    assert (problem.path, problem.line) == (EPOCHS, 3 + len(entries))


def test_a_missing_epoch_checkpoint_is_reported(disk: SimulatedDisk) -> None:
    disk.remove(EPOCHS)
    assert found(verify(disk)) == {("missing", EPOCHS, None)}


@pytest.mark.parametrize(
    "path",
    [
        EPOCHS,
        f"{DATA}/recovery-point-offset-checkpoint",
        f"{DATA}/replication-offset-checkpoint",
        f"{DATA}/log-start-offset-checkpoint",
    ],
)
def test_a_malformed_checkpoint_is_reported_with_its_line(disk: SimulatedDisk, path: str) -> None:
    put(disk, path, b"0\n2\nx\n")
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.line) == ("checkpoint", path, 2)


def test_malformed_metadata_are_reported(disk: SimulatedDisk) -> None:
    put(disk, f"{FOLDER}/partition.metadata", b"version: 0\ntopic_id: nonsense")
    put(disk, f"{DATA}/meta.properties", b"version=5\n")
    problems = {(item.path, item.line) for item in verify(disk).problems}
    assert problems == {(f"{FOLDER}/partition.metadata", 2), (f"{DATA}/meta.properties", 1)}


@pytest.mark.parametrize(
    ("name", "lenient"),
    [
        ("recovery-point-offset-checkpoint", False),
        ("replication-offset-checkpoint", True),
        ("log-start-offset-checkpoint", True),
        ("cleaner-offset-checkpoint", True),
    ],
)
def test_a_checkpoint_beyond_the_log_is_reported(
    disk: SimulatedDisk, name: str, lenient: bool
) -> None:
    path = f"{DATA}/{name}"
    content = disk.files()[f"{DATA}/recovery-point-offset-checkpoint"]
    (partition,) = decode_offsets(content, path)
    put(disk, path, encode_offsets({partition: Offset(9999)}))
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.line) == ("checkpoint", path, 3)
    disk.remove(f"{DATA}/.kafka_cleanshutdown")
    assert verify(disk).is_clean is lenient  # only what was flushed cannot have been lost


# -- names -----------------------------------------------------------------------------------


def test_an_index_without_its_log_is_reported(disk: SimulatedDisk) -> None:
    path = f"{FOLDER}/{12345:020d}.index"
    put(disk, path, b"")
    assert found(verify(disk)) == {("orphan", path, None)}


def test_a_segment_with_a_wrong_name_is_reported(disk: SimulatedDisk) -> None:
    paths = [f"{FOLDER}/12345.log", f"{FOLDER}/{'9' * 20}.log"]
    for path in paths:
        put(disk, path, b"")
    assert found(verify(disk)) == {("name", path, None) for path in paths}


def test_leftovers_and_strangers_are_notes(disk: SimulatedDisk) -> None:
    names = {
        f"{FOLDER}/{0:020d}.log.cleaned": "leftover",
        f"{FOLDER}/{0:020d}.log.swap": "leftover",
        f"{FOLDER}/{0:020d}.index.deleted": "leftover",
        f"{FOLDER}/leader-epoch-checkpoint.tmp": "leftover",
        f"{FOLDER}/notes.txt": "unknown",
        f"{DATA}/recovery-point-offset-checkpoint.tmp": "leftover",
        f"{DATA}/notes.txt": "unknown",
    }
    for path in names:
        put(disk, path, b"")
    for folder, kind in [
        ("t-0.77-delete", "leftover"),
        ("x", "unknown"),
        ("t-1-stray", "leftover"),
    ]:
        disk.make_directory(f"{DATA}/{folder}")
        names[f"{DATA}/{folder}"] = kind
    findings = verify(disk)
    assert findings.problems == []
    assert {note.path: note.kind for note in findings.notes} == names


def test_a_folder_that_cannot_be_read_is_reported_and_the_others_are_checked(
    disk: SimulatedDisk, tmp_path: Path
) -> None:
    with writing(tmp_path) as writer:
        fill(writer)
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / f"{0:020d}.log").mkdir()
    (tmp_path / "a-0" / "partition.metadata").mkdir()
    findings = verify_directory(tmp_path)
    assert [item.kind for item in findings.problems] == ["unreadable"]
    assert findings.batches == verify(disk).batches


# -- damage of any kind ----------------------------------------------------------------------


def test_no_flipped_bit_of_a_log_file_goes_unnoticed_but_where_nothing_knows_better(
    disk: SimulatedDisk,
) -> None:
    """Offset and epoch lie outside of the CRC: these need a neighbour that contradicts them."""
    path = sealed(disk)
    size = len(disk.files()[path])
    missed = []
    for position in range(0, size, scaled(test=11, verify=1, release=1)):
        damaged = disk.copy()
        flip(damaged, path, position, bit=position % 8)
        findings = verify_directory(FOLDER, damaged)
        if findings.is_clean:
            missed.append(position)
    assert missed == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_no_flipped_bit_of_a_companion_goes_unnoticed(disk: SimulatedDisk, suffix: str) -> None:
    path = sealed(disk, suffix)
    for position in range(len(disk.files()[path])):
        damaged = disk.copy()
        flip(damaged, path, position, bit=position % 8)
        assert path in {item.path for item in verify_directory(FOLDER, damaged).all}


def test_any_cut_of_any_file_ends_in_findings_not_in_errors(disk: SimulatedDisk) -> None:
    step = scaled(test=67, verify=7, release=1)
    for path, content in disk.files().items():
        for length in range(0, len(content), step):
            damaged = disk.copy()
            damaged.cut(path, length)
            verify_directory(DATA, damaged, records=True)


def test_progress_adds_up_to_the_bytes_of_all_log_files(disk: SimulatedDisk) -> None:
    steps: list[int] = []
    verify_directory(DATA, disk, progress=steps.append)
    logs = [content for path, content in disk.files().items() if path.endswith(".log")]
    assert sum(steps) == count_log_bytes(disk, DATA) == sum(map(len, logs))
