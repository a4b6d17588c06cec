import pytest

from penstock.logs.event_logger import NO_LOGGER, message_logger
from penstock.model.ids import Offset, TopicPartition
from penstock.storage.checkpoints import (
    decode_offsets,
    encode_offsets,
    read_offsets,
    read_offsets_or_report,
    write_offsets,
)
from penstock.storage.errors import MalformedCheckpoint
from penstock.testing.simulated_disk import SimulatedCrash, SimulatedDisk, every_choice

OFFSETS = {
    TopicPartition("orders", 0): Offset(0),
    TopicPartition("orders", 2**31 - 1): Offset(2**63 - 1),
    TopicPartition("a.b_c-d", 12): Offset(345),
}
GOLDEN = (
    b"0\n3\norders 0 0\norders 2147483647 9223372036854775807\na.b_c-d 12 345\n"  # as Kafka writes
)


def test_offsets_are_written_as_kafka_writes_them() -> None:
    assert encode_offsets(OFFSETS) == GOLDEN
    assert encode_offsets({}) == b"0\n0\n"


def test_offsets_written_by_kafka_are_read() -> None:
    assert decode_offsets(GOLDEN, "f") == OFFSETS
    assert decode_offsets(b"0\n0\n", "f") == {}


def test_a_file_that_kafka_created_but_never_wrote_is_empty() -> None:
    assert decode_offsets(b"", "f") == {}


def test_windows_line_ends_and_extra_blanks_are_read() -> None:
    assert decode_offsets(b"0\r\n1\r\norders  1\t7\r\n", "f") == {TopicPartition("orders", 1): 7}


def test_a_truncated_file_never_reads_as_a_shorter_valid_one() -> None:
    for length in range(1, len(GOLDEN)):
        with pytest.raises(MalformedCheckpoint):
            decode_offsets(GOLDEN[:length], "f")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"1\n0\n", 1),
        (b"x\n0\n", 1),
        (b"\n", 1),
        (b"0\n", 2),
        (b"0\n-1\n", 2),
        (b"0\n2\norders 0 1\n", 2),
        (b"0\n1\norders 0 1\norders 1 1\n", 2),
        (b"0\n99999999999999999999\n", 2),
        (b"0\n1\norders 0\n", 3),
        (b"0\n1\norders 0 1 2\n", 3),
        (b"0\n1\norders zero 1\n", 3),
        (b"0\n1\norders 0 -1\n", 3),
        (b"0\n1\norders 0 1_000\n", 3),
        (b"0\n1\norders 0 9223372036854775808\n", 3),
        (b"0\n1\norders 2147483648 1\n", 3),
        (b"0\n1\n../etc 0 1\n", 3),
        (b"0\n2\norders 0 1\norders 0 2\n", 4),
        (b"0\n2\norders 0 1\n\xff 0 2\n", 4),
        (b"0\n2\norders 0 1\norders 1 2", 4),
    ],
)
def test_a_malformed_file_is_rejected_with_its_name_and_line(content: bytes, line: int) -> None:
    with pytest.raises(MalformedCheckpoint) as caught:
        decode_offsets(content, "/data/some-checkpoint")
    assert caught.value.path == "/data/some-checkpoint"
    assert caught.value.line == line
    assert f"/data/some-checkpoint, line {line}: " in str(caught.value)


PATH = "/data/recovery-point-offset-checkpoint"


def test_a_missing_file_has_no_offsets() -> None:
    assert read_offsets(SimulatedDisk("/data"), PATH) == {}


def test_written_offsets_replace_the_previous_ones() -> None:
    disk = SimulatedDisk("/data")
    write_offsets(disk, PATH, {TopicPartition("gone", 1): Offset(1)})
    write_offsets(disk, PATH, OFFSETS)
    assert read_offsets(disk, PATH) == OFFSETS
    assert disk.files() == {PATH: GOLDEN}


def test_a_power_failure_at_any_step_leaves_the_old_offsets_or_the_new_ones() -> None:
    before = {TopicPartition("orders", 0): Offset(7)}
    seen = set()
    for ordinal in range(100):
        disk = SimulatedDisk("/data")
        write_offsets(disk, PATH, before)
        disk.crash_before(len(disk.trace) + ordinal)
        try:
            write_offsets(disk, PATH, OFFSETS)
        except SimulatedCrash:
            allowed = [before, OFFSETS]
        else:
            break
        for choice in every_choice():
            left = read_offsets(disk.survivor_of_power_cut(choice), PATH)
            assert left in allowed
            seen.add(left == OFFSETS)
    assert seen == {False, True}
    assert read_offsets(disk.survivor_of_power_cut(next(every_choice())), PATH) == OFFSETS


def test_recovery_continues_without_a_malformed_file_and_reports_it() -> None:
    disk = SimulatedDisk("/data")
    write_offsets(disk, PATH, OFFSETS)
    disk.cut(PATH, len(GOLDEN) - 3)
    reports: list[str] = []
    assert read_offsets_or_report(disk, PATH, message_logger(reports.append)) == {}
    assert len(reports) == 1
    assert PATH in reports[0]


def test_recovery_reports_nothing_about_a_good_or_missing_file() -> None:
    disk = SimulatedDisk("/data")
    reports: list[str] = []
    assert read_offsets_or_report(disk, PATH, message_logger(reports.append)) == {}
    write_offsets(disk, PATH, OFFSETS)
    assert read_offsets_or_report(disk, PATH, message_logger(reports.append)) == OFFSETS
    assert reports == []


def test_a_directory_instead_of_the_file_is_an_io_error() -> None:
    with pytest.raises(OSError, match="directory"):
        read_offsets_or_report(SimulatedDisk(PATH), PATH, NO_LOGGER)
