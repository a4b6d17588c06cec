"""Kills and power failures leave all synced data and a legal part of the rest."""

import pytest
from tests.profile import scaled

from penstock.io.disk import APPEND, CREATE, REPLACE, read_file, replace_file, write_fully
from penstock.testing.simulated_disk import (
    KeepEverything,
    LoseEverything,
    OperationKind,
    SeededChoice,
    SimulatedCrash,
    SimulatedDisk,
    every_choice,
)

SEEDS = scaled(test=60, verify=400, release=4000)


def outcomes(disk: SimulatedDisk, path: str) -> set[bytes | None]:
    """Return every possible content of the file after a power failure; None if it is missing."""
    return {disk.survivor_of_power_cut(choice).files().get(path, None) for choice in every_choice()}


def synced_file(disk: SimulatedDisk, path: str, content: bytes) -> int:
    descriptor = disk.open(path, CREATE)
    write_fully(disk, descriptor, content)
    disk.sync(descriptor)
    disk.sync_directory(path.rpartition("/")[0])
    return descriptor


def test_a_kill_keeps_written_data_and_frees_locks_and_descriptors() -> None:
    disk = SimulatedDisk("/data")
    descriptor = disk.open("/data/log", CREATE)
    disk.write(descriptor, b"abc")
    assert disk.try_lock(descriptor)
    disk.crash()
    survivor = disk.survivor_of_kill()
    assert survivor.files() == {"/data/log": b"abc"}
    assert survivor.open_descriptors == 0
    assert survivor.try_lock(survivor.open("/data/log", APPEND))


def test_a_kill_makes_nothing_durable() -> None:
    disk = SimulatedDisk("/data")
    synced_file(disk, "/data/log", b"abc")
    disk.write(disk.open("/data/log", APPEND), b"def")
    killed = disk.survivor_of_kill()
    assert killed.survivor_of_power_cut(LoseEverything()).files() == {"/data/log": b"abc"}
    assert killed.survivor_of_power_cut(KeepEverything()).files() == {"/data/log": b"abcdef"}


def test_a_power_cut_keeps_a_prefix_of_appends_torn_or_followed_by_zeros() -> None:
    disk = SimulatedDisk("/data")
    descriptor = synced_file(disk, "/data/log", b"S")
    disk.write(descriptor, b"ab")
    disk.write(descriptor, b"cd")
    whole = b"Sabcd"
    legal = {whole[:kept] + bytes(zeros) for kept in range(1, 6) for zeros in range(6 - kept)}
    assert outcomes(disk, "/data/log") == legal


def test_truncation_and_appends_become_durable_in_order() -> None:
    disk = SimulatedDisk("/data")
    descriptor = synced_file(disk, "/data/log", b"abc")
    disk.truncate(descriptor, 1)
    disk.write(descriptor, b"Z")
    assert outcomes(disk, "/data/log") == {b"abc", b"a", b"aZ", b"a\0"}
    disk.sync(descriptor)
    assert outcomes(disk, "/data/log") == {b"aZ"}


def test_a_file_extended_by_truncation_has_zeros_or_its_old_length() -> None:
    disk = SimulatedDisk("/data")
    descriptor = synced_file(disk, "/data/log", b"abc")
    disk.truncate(descriptor, 5)
    assert outcomes(disk, "/data/log") == {b"abc", b"abc\0\0"}


def test_a_synced_file_without_a_synced_name_may_be_missing() -> None:
    disk = SimulatedDisk("/data")
    descriptor = disk.open("/data/log", CREATE)
    disk.write(descriptor, b"abc")
    disk.sync(descriptor)
    assert outcomes(disk, "/data/log") == {None, b"abc"}
    disk.sync_directory("/data")
    assert outcomes(disk, "/data/log") == {b"abc"}


def test_a_synced_name_does_not_make_the_content_durable() -> None:
    disk = SimulatedDisk("/data")
    disk.write(disk.open("/data/log", CREATE), b"a")
    disk.sync_directory("/data")
    assert outcomes(disk, "/data/log") == {b"", b"a", b"\0"}


def test_names_of_one_directory_become_durable_in_order() -> None:
    disk = SimulatedDisk("/data")
    for name in ("a", "b", "c"):
        disk.close(disk.open(f"/data/{name}", CREATE))
    survivors = {tuple(disk.survivor_of_power_cut(choice).files()) for choice in every_choice()}
    assert survivors == {
        (),
        ("/data/a",),
        ("/data/a", "/data/b"),
        ("/data/a", "/data/b", "/data/c"),
    }


def test_names_of_two_directories_become_durable_independently() -> None:
    disk = SimulatedDisk("/one", "/two")
    disk.close(disk.open("/one/a", CREATE))
    disk.close(disk.open("/two/b", CREATE))
    survivors = {tuple(disk.survivor_of_power_cut(choice).files()) for choice in every_choice()}
    assert survivors == {(), ("/one/a",), ("/two/b",), ("/one/a", "/two/b")}


def test_an_unsynced_unlink_may_be_undone() -> None:
    disk = SimulatedDisk("/data")
    synced_file(disk, "/data/log", b"abc")
    disk.unlink("/data/log")
    assert outcomes(disk, "/data/log") == {b"abc", None}
    disk.sync_directory("/data")
    assert outcomes(disk, "/data/log") == {None}


@pytest.mark.parametrize("target", ["/data/new", "/other/new", "/data/made/new", "/other/made/new"])
def test_a_rename_leaves_exactly_one_of_both_names(target: str) -> None:
    disk = SimulatedDisk("/data", "/other")
    synced_file(disk, "/data/old", b"abc")
    disk.make_directory("/data/made")
    disk.make_directory("/other/made")
    disk.rename("/data/old", target)
    for choice in every_choice():
        files = disk.survivor_of_power_cut(choice).files()
        assert files in ({"/data/old": b"abc"}, {target: b"abc"})


@pytest.mark.parametrize("synced", ["/data", "/other"])
def test_syncing_either_directory_makes_a_rename_durable_in_both(synced: str) -> None:
    disk = SimulatedDisk("/data", "/other")
    synced_file(disk, "/data/old", b"abc")
    disk.rename("/data/old", "/other/new")
    disk.sync_directory(synced)
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {"/other/new": b"abc"}


def test_a_synced_rename_includes_earlier_changes_in_both_directories() -> None:
    disk = SimulatedDisk("/data", "/other")
    synced_file(disk, "/data/log", b"new")
    synced_file(disk, "/other/log", b"old")
    disk.unlink("/other/log")
    disk.rename("/data/log", "/other/log")
    disk.sync_directory("/data")
    for choice in every_choice():
        assert disk.survivor_of_power_cut(choice).files() == {"/other/log": b"new"}


def test_removing_a_directory_does_not_lose_files_moved_out_of_it() -> None:
    disk = SimulatedDisk("/data/inner", "/other")
    synced_file(disk, "/data/inner/log", b"abc")
    disk.rename("/data/inner/log", "/other/log")
    disk.remove_directory("/data/inner")
    for choice in every_choice():
        assert list(disk.survivor_of_power_cut(choice).files().values()) == [b"abc"]


def test_a_new_directory_without_a_synced_name_may_be_missing_with_its_files() -> None:
    disk = SimulatedDisk("/data")
    disk.make_directory("/data/topic")
    synced_file(disk, "/data/topic/log", b"abc")
    assert outcomes(disk, "/data/topic/log") == {None, b"abc"}
    disk.sync_directory("/data")
    assert outcomes(disk, "/data/topic/log") == {b"abc"}


def test_a_survivor_of_a_power_cut_is_durable() -> None:
    disk = SimulatedDisk("/data")
    disk.write(disk.open("/data/log", CREATE), b"abcdef")
    for seed in range(SEEDS):
        survivor = disk.survivor_of_power_cut(SeededChoice(seed))
        assert survivor.survivor_of_power_cut(LoseEverything()).files() == survivor.files()


def test_losing_and_keeping_everything_are_the_extremes() -> None:
    disk = SimulatedDisk("/data")
    descriptor = synced_file(disk, "/data/log", b"abc")
    disk.truncate(descriptor, 2)
    disk.write(descriptor, b"def")
    disk.close(disk.open("/data/more", REPLACE))
    assert disk.survivor_of_power_cut(LoseEverything()).files() == {"/data/log": b"abc"}
    assert disk.survivor_of_power_cut(KeepEverything()).files() == disk.files()


def test_a_seed_picks_the_same_outcome_again_and_seeds_differ() -> None:
    disk = SimulatedDisk("/data")
    disk.write(disk.open("/data/log", CREATE), b"abcdefghijklmnop")
    disk.sync_directory("/data")
    outcomes = [disk.survivor_of_power_cut(SeededChoice(seed)).files() for seed in range(SEEDS)]
    again = [disk.survivor_of_power_cut(SeededChoice(seed)).files() for seed in range(SEEDS)]
    assert outcomes == again
    assert len({str(files) for files in outcomes}) > 10


def replacement(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk("/data")
    replace_file(disk, "/data/checkpoint", content)
    return disk


def test_replace_file_is_old_or_new_after_a_crash_before_any_operation() -> None:
    rehearsal = replacement(b"old")
    first = len(rehearsal.trace)
    replace_file(rehearsal, "/data/checkpoint", b"newer")
    kinds = [operation.kind for operation in rehearsal.trace[first:]]
    assert kinds == [
        OperationKind.CREATE,
        OperationKind.WRITE,
        OperationKind.SYNC,
        OperationKind.RENAME,
        OperationKind.SYNC_DIRECTORY,
    ]
    for ordinal in range(first, len(rehearsal.trace)):
        disk = replacement(b"old")
        disk.crash_before(ordinal)
        with pytest.raises(SimulatedCrash):
            replace_file(disk, "/data/checkpoint", b"newer")
        assert_old_or_new(disk)


@pytest.mark.parametrize("keep_bytes", range(6))
def test_replace_file_is_old_or_new_after_a_torn_write(keep_bytes: int) -> None:
    disk = replacement(b"old")
    disk.crash_during(len(disk.trace) + 1, keep_bytes)
    with pytest.raises(SimulatedCrash):
        replace_file(disk, "/data/checkpoint", b"newer")
    assert disk.files()["/data/checkpoint.tmp"] == b"newer"[:keep_bytes]
    assert_old_or_new(disk)


def assert_old_or_new(disk: SimulatedDisk) -> None:
    killed = disk.survivor_of_kill()
    assert read_file(killed, "/data/checkpoint") in (b"old", b"newer")
    assert outcomes(disk, "/data/checkpoint") <= {b"old", b"newer"}
    # The leftovers of the kill do not prevent another attempt, or a crash in it.
    replace_file(killed, "/data/checkpoint", b"newest")
    assert outcomes(killed, "/data/checkpoint") == {b"newest"}


def test_replace_file_is_durable_when_it_returns() -> None:
    assert outcomes(replacement(b"old"), "/data/checkpoint") == {b"old"}


def test_a_replacement_without_a_sync_of_the_file_is_caught() -> None:
    disk = replacement(b"old")
    disk.write(disk.open("/data/checkpoint.tmp", REPLACE), b"new")
    disk.rename("/data/checkpoint.tmp", "/data/checkpoint")
    disk.sync_directory("/data")
    assert {b"", b"n", b"new", b"\0\0\0"} <= outcomes(disk, "/data/checkpoint")
