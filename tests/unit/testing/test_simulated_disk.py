"""Planned faults of SimulatedDisk, and its access for tests."""

import threading
from collections.abc import Callable
from errno import EIO, ENOSPC, EROFS

import pytest

from penstock.io.disk import APPEND, CREATE, READ, REPLACE, read_file, write_fully
from penstock.testing.simulated_disk import (
    MUTATIONS,
    DiskOperation,
    KeepEverything,
    LoseEverything,
    OperationKind,
    SimulatedCrash,
    SimulatedDisk,
)


def disk_with_log(content: bytes = b"") -> tuple[SimulatedDisk, int]:
    disk = SimulatedDisk("/data")
    descriptor = disk.open("/data/log", CREATE)
    write_fully(disk, descriptor, content)
    disk.sync(descriptor)
    disk.sync_directory("/data")
    return disk, descriptor


def next_ordinal(disk: SimulatedDisk) -> int:
    return len(disk.trace)


def test_the_trace_has_every_mutation_and_nothing_else() -> None:
    disk = SimulatedDisk("/data")
    descriptor = disk.open("/data/log", CREATE)
    disk.write(descriptor, b"abc")
    disk.truncate(descriptor, 1)
    disk.sync(descriptor)
    disk.pread(descriptor, 1, 0)
    disk.size(descriptor)
    disk.close(descriptor)
    disk.close(disk.open("/data/log", CREATE))
    disk.close(disk.open("/data/log", REPLACE))
    disk.make_directory("/data/topic")
    disk.rename("/data/log", "/data/topic/log")
    disk.unlink("/data/topic/log")
    with pytest.raises(FileNotFoundError):
        disk.unlink("/data/topic/log")
    disk.remove_directory("/data/topic")
    disk.sync_directory("/data")
    assert disk.trace == [
        DiskOperation(OperationKind.CREATE, "/data/log"),
        DiskOperation(OperationKind.WRITE, "/data/log", length=3),
        DiskOperation(OperationKind.TRUNCATE, "/data/log", length=1),
        DiskOperation(OperationKind.SYNC, "/data/log"),
        DiskOperation(OperationKind.TRUNCATE, "/data/log"),
        DiskOperation(OperationKind.MAKE_DIRECTORY, "/data/topic"),
        DiskOperation(OperationKind.RENAME, "/data/log", "/data/topic/log"),
        DiskOperation(OperationKind.UNLINK, "/data/topic/log"),
        DiskOperation(OperationKind.REMOVE_DIRECTORY, "/data/topic"),
        DiskOperation(OperationKind.SYNC_DIRECTORY, "/data"),
    ]


def test_a_crash_stops_the_operation_and_every_call_after_it() -> None:
    disk, descriptor = disk_with_log(b"abc")
    disk.crash_before(next_ordinal(disk) + 1)
    disk.write(descriptor, b"d")
    with pytest.raises(SimulatedCrash):
        disk.write(descriptor, b"e")
    for call in (
        lambda: disk.close(descriptor),
        lambda: disk.pread(descriptor, 1, 0),
        lambda: disk.exists("/data/log"),
        lambda: disk.list("/data"),
        lambda: disk.open("/data/log", READ),
    ):
        with pytest.raises(SimulatedCrash):
            call()
    assert disk.files() == {"/data/log": b"abcd"}
    assert disk.survivor_of_kill().exists("/data/log")


def test_except_exception_does_not_catch_a_simulated_crash() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_a_crash_during_a_write_keeps_its_first_bytes() -> None:
    disk, descriptor = disk_with_log(b"abc")
    disk.crash_during(next_ordinal(disk), keep_bytes=2)
    with pytest.raises(SimulatedCrash):
        disk.write(descriptor, b"defg")
    assert disk.survivor_of_kill().files() == {"/data/log": b"abcde"}
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {"/data/log": b"abc"}


def test_only_a_write_can_crash_in_the_middle() -> None:
    disk, _ = disk_with_log()
    disk.crash_during(next_ordinal(disk), keep_bytes=2)
    with pytest.raises(ValueError, match="unlink of /data/log"):
        disk.unlink("/data/log")


def test_a_planned_error_happens_once_and_changes_nothing() -> None:
    disk, descriptor = disk_with_log(b"abc")
    disk.fail_at(next_ordinal(disk), EIO)
    with pytest.raises(OSError, match="/data/log") as caught:
        disk.write(descriptor, b"def")
    assert caught.value.errno == EIO
    assert disk.files() == {"/data/log": b"abc"}
    assert disk.write(descriptor, b"def") == 3
    assert disk.files() == {"/data/log": b"abcdef"}


@pytest.mark.parametrize("kind", sorted(MUTATIONS))
def test_every_kind_of_mutation_can_fail_without_effect(kind: OperationKind) -> None:
    disk = SimulatedDisk("/data/topic")
    descriptor = disk.open("/data/log", CREATE)
    calls: dict[OperationKind, Callable[[], object]] = {
        OperationKind.CREATE: lambda: disk.open("/data/new", CREATE),
        OperationKind.WRITE: lambda: disk.write(descriptor, b"x"),
        OperationKind.TRUNCATE: lambda: disk.truncate(descriptor, 7),
        OperationKind.SYNC: lambda: disk.sync(descriptor),
        OperationKind.SYNC_DIRECTORY: lambda: disk.sync_directory("/data"),
        OperationKind.MAKE_DIRECTORY: lambda: disk.make_directory("/data/new"),
        OperationKind.REMOVE_DIRECTORY: lambda: disk.remove_directory("/data/topic"),
        OperationKind.RENAME: lambda: disk.rename("/data/log", "/data/new"),
        OperationKind.UNLINK: lambda: disk.unlink("/data/log"),
    }
    before = disk.files(), disk.list("/data"), disk.open_descriptors
    disk.fail_at(next_ordinal(disk), EIO)
    with pytest.raises(OSError, match="/data") as caught:
        calls[kind]()
    assert caught.value.errno == EIO
    assert (disk.files(), disk.list("/data"), disk.open_descriptors) == before
    assert disk.trace[-1].kind is kind
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {}


def test_an_error_after_some_bytes_is_a_short_write_first() -> None:
    disk, descriptor = disk_with_log(b"abc")
    disk.fail_at(next_ordinal(disk), ENOSPC, partial_bytes=2)
    with pytest.raises(OSError, match="space") as caught:
        write_fully(disk, descriptor, b"defg")
    assert caught.value.errno == ENOSPC
    assert disk.files() == {"/data/log": b"abcde"}
    write_fully(disk, descriptor, b"f")
    assert disk.files() == {"/data/log": b"abcdef"}


def test_the_error_after_a_short_write_waits_for_the_same_file() -> None:
    disk, descriptor = disk_with_log()
    other = disk.open("/data/other", CREATE)
    disk.fail_at(next_ordinal(disk), EIO, partial_bytes=1)
    assert disk.write(descriptor, b"abc") == 1
    assert disk.write(other, b"abc") == 3
    with pytest.raises(OSError, match="/data/log"):
        disk.write(descriptor, b"bc")


def test_a_short_write_continues_at_its_end() -> None:
    disk, descriptor = disk_with_log()
    disk.shorten_write(next_ordinal(disk), 2)
    write_fully(disk, descriptor, b"abcdef")
    assert disk.files() == {"/data/log": b"abcdef"}
    assert [op.length for op in disk.trace if op.kind is OperationKind.WRITE] == [6, 4]


def test_a_failed_path_fails_until_it_is_healed_and_others_do_not() -> None:
    disk = SimulatedDisk("/bad", "/good")
    descriptor = disk.open("/bad/log", CREATE)
    disk.fail_path("/bad", EROFS)
    for _ in range(2):
        with pytest.raises(OSError, match="/bad/log") as caught:
            disk.write(descriptor, b"abc")
        assert caught.value.errno == EROFS
    disk.close(disk.open("/good/log", CREATE))
    with pytest.raises(OSError, match="/good/log"):
        disk.rename("/good/log", "/bad/new")
    assert disk.pread(descriptor, 1, 0) == b""
    disk.heal()
    assert disk.write(descriptor, b"abc") == 3


def test_a_failed_path_can_fail_reads_or_single_kinds() -> None:
    disk, descriptor = disk_with_log(b"abc")
    disk.fail_path("log", EIO, kinds={OperationKind.READ, OperationKind.SYNC})
    disk.write(descriptor, b"d")
    for call in (
        lambda: disk.pread(descriptor, 1, 0),
        lambda: disk.read_into(descriptor, memoryview(bytearray(1)), 0),
        lambda: disk.map(descriptor),
        lambda: disk.size_of("/data/log"),
        lambda: disk.open("/data/log", READ),
        lambda: disk.sync(descriptor),
    ):
        with pytest.raises(OSError, match="/data/log"):
            call()
    assert disk.open_descriptors == 1


def test_a_full_disk_accepts_what_fits_and_then_fails() -> None:
    disk = SimulatedDisk("/data", capacity_bytes=5)
    descriptor = disk.open("/data/log", CREATE)
    assert disk.write(descriptor, b"abc") == 3
    assert disk.write(descriptor, b"def") == 2
    with pytest.raises(OSError, match="space") as caught:
        disk.write(descriptor, b"f")
    assert caught.value.errno == ENOSPC
    assert disk.files() == {"/data/log": b"abcde"}
    disk.truncate(descriptor, 4)
    assert disk.write(descriptor, b"xyz") == 1


def test_an_unlinked_file_uses_space_until_it_is_closed() -> None:
    disk = SimulatedDisk("/data", capacity_bytes=3)
    descriptor = disk.open("/data/old", CREATE)
    disk.write(descriptor, b"abc")
    disk.unlink("/data/old")
    other = disk.open("/data/new", CREATE)
    with pytest.raises(OSError, match="space"):
        disk.write(other, b"d")
    disk.close(descriptor)
    assert disk.write(other, b"d") == 1


def test_no_later_sync_writes_the_bytes_of_a_failed_sync() -> None:
    disk, descriptor = disk_with_log(b"abc")
    disk.write(descriptor, b"lost")
    disk.fail_at(next_ordinal(disk), EIO)
    with pytest.raises(OSError, match="/data/log"):
        disk.sync(descriptor)
    lost = disk.survivor_of_power_cut(KeepEverything()).files()
    assert lost == {"/data/log": b"abc\0\0\0\0"}
    disk.write(descriptor, b"later")
    disk.sync(descriptor)
    assert read_file(disk, "/data/log") == b"abclostlater"
    for choice in (LoseEverything(), KeepEverything()):
        files = disk.survivor_of_power_cut(choice).files()
        assert files == {"/data/log": b"abc\0\0\0\0later"}


def test_bytes_lost_by_a_failed_sync_are_whole_again_once_rewritten() -> None:
    disk, descriptor = disk_with_log(b"abc")
    disk.write(descriptor, b"lost")
    disk.fail_at(next_ordinal(disk), EIO)
    with pytest.raises(OSError, match="/data/log"):
        disk.sync(descriptor)
    disk.truncate(descriptor, 3)
    disk.write(descriptor, b"again")
    disk.sync(descriptor)
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {"/data/log": b"abcagain"}


def test_a_failed_sync_can_keep_the_bytes_for_the_next_one() -> None:
    disk = SimulatedDisk("/data", failed_sync_loses_data=False)
    descriptor = disk.open("/data/log", CREATE)
    disk.sync_directory("/data")
    disk.write(descriptor, b"abc")
    disk.fail_at(next_ordinal(disk), EIO)
    with pytest.raises(OSError, match="/data/log"):
        disk.sync(descriptor)
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {"/data/log": b""}
    disk.sync(descriptor)
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {"/data/log": b"abc"}


def test_a_copy_and_its_original_are_independent() -> None:
    disk, descriptor = disk_with_log(b"abc")
    disk.write(descriptor, b"d")
    disk.fail_path("log", EIO)
    twin = disk.copy()
    twin.write(twin.open("/data/log", APPEND), b"twin")
    disk.heal()
    disk.write(descriptor, b"e")
    disk.truncate(descriptor, 2)
    twin.close(twin.open("/data/new", CREATE))
    assert disk.files() == {"/data/log": b"ab"}
    assert twin.files() == {"/data/log": b"abcdtwin", "/data/new": b""}
    assert twin.survivor_of_power_cut(LoseEverything()).files() == {"/data/log": b"abc"}
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {"/data/log": b"abc"}
    assert twin.survivor_of_power_cut(KeepEverything()).files() == twin.files()
    assert disk.survivor_of_power_cut(KeepEverything()).files() == disk.files()


def test_tampering_changes_the_cache_and_the_durable_bytes() -> None:
    disk, _ = disk_with_log(b"abcdef")
    disk.overwrite("/data/log", 1, b"XY")
    disk.flip_bit("/data/log", 3 * 8 + 5)
    disk.cut("/data/log", 5)
    expected = {"/data/log": b"aXYDe"}
    assert disk.files() == expected
    assert disk.survivor_of_power_cut(LoseEverything()).files() == expected
    disk.remove("/data/log")
    assert disk.files() == {}
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {}


def test_tampering_outside_the_file_is_refused() -> None:
    disk, _ = disk_with_log(b"abc")
    with pytest.raises(ValueError, match="3 bytes"):
        disk.overwrite("/data/log", 2, b"XY")
    with pytest.raises(IndexError):
        disk.flip_bit("/data/log", 24)


def test_unknown_flags_are_refused_rather_than_ignored() -> None:
    disk, _ = disk_with_log()
    with pytest.raises(ValueError, match="not simulated"):
        disk.open("/data/log", 2)  # O_RDWR without O_APPEND would overwrite the start


def test_writes_of_several_threads_are_not_interleaved() -> None:
    disk, descriptor = disk_with_log()

    def write_letter(letter: bytes) -> None:
        for _ in range(300):
            disk.write(descriptor, letter * 4)
            disk.sync(descriptor)

    threads = [threading.Thread(target=write_letter, args=(letter,)) for letter in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = disk.files()["/data/log"]
    pieces = [content[position : position + 4] for position in range(0, len(content), 4)]
    assert sorted(pieces) == [b"aaaa"] * 300 + [b"bbbb"] * 300
    assert disk.survivor_of_power_cut(LoseEverything()).files()["/data/log"] == content
