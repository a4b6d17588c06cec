"""The same scenarios on RealDisk and SimulatedDisk."""

import os
import socket
from collections.abc import Callable
from errno import (
    EBADF,
    EEXIST,
    EINVAL,
    EISDIR,
    ENAMETOOLONG,
    ENOENT,
    ENOTDIR,
    ENOTEMPTY,
)
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from penstock.io.disk import (
    APPEND,
    CREATE,
    READ,
    REPLACE,
    DirectoryEntry,
    Disk,
    RealDisk,
    read_file,
    read_fully,
    replace_file,
    write_fully,
)
from penstock.testing.simulated_disk import SimulatedDisk


class DiskUnderTest(NamedTuple):
    disk: Disk
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, content: bytes = b"") -> str:
        descriptor = self.disk.open(self.path(name), REPLACE)
        write_fully(self.disk, descriptor, content)
        self.disk.close(descriptor)
        return self.path(name)

    def content(self, name: str) -> bytes | None:
        return read_file(self.disk, self.path(name))


@pytest.fixture(params=["kernel", "simulated"])
def rooted(request: pytest.FixtureRequest, tmp_path: Path) -> DiskUnderTest:
    if request.param == "kernel":
        return DiskUnderTest(cast("Disk", RealDisk()), str(tmp_path))
    return DiskUnderTest(SimulatedDisk("/data"), "/data")


def errno_of(call: Callable[..., object], *arguments: object) -> int | None:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        call(*arguments)
    return caught.value.errno


def test_writes_append_and_reads_are_short_at_the_end(rooted: DiskUnderTest) -> None:
    descriptor = rooted.disk.open(rooted.path("log"), CREATE)
    assert rooted.disk.write(descriptor, b"abc") == 3
    assert rooted.disk.write(descriptor, memoryview(bytearray(b"def"))) == 3
    assert rooted.disk.pread(descriptor, 100, 2) == b"cdef"
    assert rooted.disk.pread(descriptor, 2, 2) == b"cd"
    assert rooted.disk.pread(descriptor, 1, 6) == b""
    assert rooted.disk.pread(descriptor, 1, 60) == b""
    assert rooted.disk.size(descriptor) == rooted.disk.size_of(rooted.path("log")) == 6
    rooted.disk.close(descriptor)


def test_two_descriptors_append_to_one_file(rooted: DiskUnderTest) -> None:
    first = rooted.disk.open(rooted.path("log"), CREATE)
    second = rooted.disk.open(rooted.path("log"), APPEND)
    rooted.disk.write(first, b"one")
    rooted.disk.write(second, b"two")
    rooted.disk.write(first, b"three")
    assert read_fully(rooted.disk, second, 100, 0) == b"onetwothree"
    rooted.disk.close(first)
    rooted.disk.close(second)


def test_a_buffer_can_be_reused_after_its_write(rooted: DiskUnderTest) -> None:
    descriptor = rooted.disk.open(rooted.path("log"), CREATE)
    buffer = bytearray(b"first")
    rooted.disk.write(descriptor, buffer)
    buffer[:] = b"other"
    assert rooted.disk.pread(descriptor, 5, 0) == b"first"
    rooted.disk.close(descriptor)


def test_read_into_fills_the_available_bytes(rooted: DiskUnderTest) -> None:
    descriptor = rooted.disk.open(rooted.put("log", b"abcdef"), READ)
    buffer = bytearray(b"........")
    assert rooted.disk.read_into(descriptor, memoryview(buffer)[1:4], 1) == 3
    assert buffer == b".bcd...."
    assert rooted.disk.read_into(descriptor, memoryview(buffer), 4) == 2
    assert buffer == b"efcd...."
    assert rooted.disk.read_into(descriptor, memoryview(buffer), 6) == 0
    rooted.disk.close(descriptor)


def test_truncate_cuts_and_extends_with_zeros(rooted: DiskUnderTest) -> None:
    descriptor = rooted.disk.open(rooted.put("log", b"abcdef"), APPEND)
    rooted.disk.truncate(descriptor, 2)
    rooted.disk.truncate(descriptor, 4)
    rooted.disk.write(descriptor, b"z")
    assert rooted.content("log") == b"ab\0\0z"
    assert errno_of(rooted.disk.truncate, descriptor, -1) == EINVAL
    rooted.disk.close(descriptor)


def test_replace_flags_empty_the_file_under_other_descriptors(rooted: DiskUnderTest) -> None:
    reader = rooted.disk.open(rooted.put("log", b"abcdef"), READ)
    rooted.disk.close(rooted.disk.open(rooted.path("log"), REPLACE))
    assert rooted.disk.pread(reader, 6, 0) == b""
    rooted.disk.close(reader)


def test_a_descriptor_for_reading_changes_nothing(rooted: DiskUnderTest) -> None:
    descriptor = rooted.disk.open(rooted.put("log", b"abc"), READ)
    assert errno_of(rooted.disk.write, descriptor, b"x") == EBADF
    assert errno_of(rooted.disk.truncate, descriptor, 0) == EINVAL
    assert errno_of(rooted.disk.pread, descriptor, 1, -1) == EINVAL
    rooted.disk.sync(descriptor)
    rooted.disk.close(descriptor)
    assert rooted.content("log") == b"abc"


def test_every_call_fails_on_a_closed_descriptor(rooted: DiskUnderTest) -> None:
    disk = rooted.disk
    descriptor = disk.open(rooted.put("log", b"abc"), APPEND)
    disk.close(descriptor)
    assert errno_of(disk.close, descriptor) == EBADF
    assert errno_of(disk.write, descriptor, b"x") == EBADF
    assert errno_of(disk.pread, descriptor, 1, 0) == EBADF
    assert errno_of(disk.read_into, descriptor, memoryview(bytearray(1)), 0) == EBADF
    assert errno_of(disk.truncate, descriptor, 0) == EBADF
    assert errno_of(disk.size, descriptor) == EBADF
    assert errno_of(disk.map, descriptor) == EBADF
    assert errno_of(disk.sync, descriptor) == EBADF
    assert errno_of(disk.try_lock, descriptor) == EBADF


def test_an_unlinked_file_stays_usable_through_its_descriptor(rooted: DiskUnderTest) -> None:
    descriptor = rooted.disk.open(rooted.put("log", b"abc"), APPEND)
    rooted.disk.unlink(rooted.path("log"))
    assert not rooted.disk.exists(rooted.path("log"))
    rooted.put("log", b"another")
    rooted.disk.write(descriptor, b"def")
    assert rooted.disk.pread(descriptor, 9, 0) == b"abcdef"
    assert rooted.content("log") == b"another"
    rooted.disk.close(descriptor)


def test_a_renamed_file_keeps_its_descriptor_and_replaces_the_target(rooted: DiskUnderTest) -> None:
    descriptor = rooted.disk.open(rooted.put("old", b"abc"), APPEND)
    replaced = rooted.disk.open(rooted.put("new", b"gone"), READ)
    rooted.disk.rename(rooted.path("old"), rooted.path("new"))
    rooted.disk.write(descriptor, b"def")
    assert rooted.content("old") is None
    assert rooted.content("new") == b"abcdef"
    assert rooted.disk.pread(replaced, 9, 0) == b"gone"
    rooted.disk.close(descriptor)
    rooted.disk.close(replaced)


def test_a_renamed_directory_keeps_its_files(rooted: DiskUnderTest) -> None:
    rooted.disk.make_directory(rooted.path("topic-0"))
    descriptor = rooted.disk.open(rooted.put("topic-0/log", b"abc"), APPEND)
    rooted.disk.rename(rooted.path("topic-0"), rooted.path("topic-0.delete"))
    rooted.disk.write(descriptor, b"def")
    rooted.disk.close(descriptor)
    assert rooted.content("topic-0.delete/log") == b"abcdef"
    assert not rooted.disk.exists(rooted.path("topic-0"))


def test_rename_onto_itself_and_onto_an_empty_directory_succeeds(rooted: DiskUnderTest) -> None:
    rooted.put("file", b"abc")
    rooted.disk.rename(rooted.path("file"), rooted.path("file"))
    assert rooted.content("file") == b"abc"
    rooted.disk.make_directory(rooted.path("empty"))
    rooted.disk.make_directory(rooted.path("full"))
    rooted.put("full/file", b"def")
    rooted.disk.rename(rooted.path("full"), rooted.path("empty"))
    assert rooted.content("empty/file") == b"def"
    rooted.disk.rename(rooted.path("empty"), rooted.path("empty"))


def test_rename_fails_as_in_the_kernel(rooted: DiskUnderTest) -> None:
    path, rename = rooted.path, rooted.disk.rename
    rooted.put("file")
    for name in ("empty", "full", "full/inner"):
        rooted.disk.make_directory(path(name))
    assert errno_of(rename, path("missing"), path("new")) == ENOENT
    assert errno_of(rename, path("file"), path("missing/new")) == ENOENT
    assert errno_of(rename, path("file"), path("empty")) == EISDIR
    assert errno_of(rename, path("empty"), path("file")) == ENOTDIR
    assert errno_of(rename, path("empty"), path("full")) == ENOTEMPTY
    assert errno_of(rename, path("full/inner"), path("full")) == ENOTEMPTY
    rooted.put("full/file")
    assert errno_of(rename, path("full/file"), path("full")) == ENOTEMPTY
    assert errno_of(rename, path("full"), path("full/inner/deeper")) == EINVAL
    assert errno_of(rename, path("file/x"), path("new")) == ENOTDIR


def test_invalid_paths_fail_as_in_the_kernel(rooted: DiskUnderTest) -> None:
    disk, path = rooted.disk, rooted.path
    rooted.put("file")
    assert errno_of(disk.open, path("missing"), READ) == ENOENT
    assert errno_of(disk.open, path("missing"), APPEND) == ENOENT
    assert errno_of(disk.open, path("missing/log"), CREATE) == ENOENT
    assert errno_of(disk.open, path("file/log"), CREATE) == ENOTDIR
    assert errno_of(disk.open, "", READ) == ENOENT
    assert errno_of(disk.open, path("n" * 256), CREATE) == ENAMETOOLONG
    assert errno_of(disk.unlink, path("missing")) == ENOENT
    assert errno_of(disk.size_of, path("missing")) == ENOENT
    assert errno_of(disk.list, path("missing")) == ENOENT
    assert errno_of(disk.list, path("file")) == ENOTDIR
    assert errno_of(disk.sync_directory, path("missing")) == ENOENT
    assert errno_of(disk.sync_directory, path("file")) == ENOTDIR
    assert errno_of(disk.sync_directory, "") == ENOENT
    assert not disk.exists(path("file/log"))
    assert not disk.exists(path("n" * 256))
    assert disk.exists(path("file"))


def test_directories_are_created_listed_and_removed(rooted: DiskUnderTest) -> None:
    disk, path = rooted.disk, rooted.path
    disk.make_directory(path("topic"))
    rooted.put("file")
    assert sorted(disk.list(rooted.root)) == [
        DirectoryEntry("file", False),
        DirectoryEntry("topic", True),
    ]
    rooted.put("topic/log")
    assert errno_of(disk.make_directory, path("topic")) == EEXIST
    assert errno_of(disk.make_directory, path("file")) == EEXIST
    assert errno_of(disk.make_directory, path("missing/topic")) == ENOENT
    assert errno_of(disk.remove_directory, path("topic")) == ENOTEMPTY
    assert errno_of(disk.remove_directory, path("file")) == ENOTDIR
    assert errno_of(disk.remove_directory, path("missing")) == ENOENT
    assert errno_of(disk.unlink, path("topic")) == EISDIR
    disk.unlink(path("topic/log"))
    disk.remove_directory(path("topic"))
    assert disk.list(rooted.root) == [DirectoryEntry("file", False)]


def test_a_directory_opens_for_reading_only(rooted: DiskUnderTest) -> None:
    disk = rooted.disk
    assert errno_of(disk.open, rooted.root, APPEND) == EISDIR
    assert errno_of(disk.open, rooted.root, CREATE) == EISDIR
    descriptor = disk.open(rooted.root, READ)
    assert errno_of(disk.pread, descriptor, 1, 0) == EISDIR
    assert errno_of(disk.read_into, descriptor, memoryview(bytearray(1)), 0) == EISDIR
    assert disk.read_into(descriptor, memoryview(bytearray()), 0) == 0
    assert errno_of(disk.write, descriptor, b"x") == EBADF
    disk.sync(descriptor)
    assert disk.try_lock(descriptor)
    disk.close(descriptor)


def test_exclusive_creation_fails_if_the_file_exists(rooted: DiskUnderTest) -> None:
    rooted.disk.close(rooted.disk.open(rooted.path("file"), CREATE | os.O_EXCL))
    assert errno_of(rooted.disk.open, rooted.path("file"), CREATE | os.O_EXCL) == EEXIST


def test_a_lock_belongs_to_one_descriptor_until_it_closes(rooted: DiskUnderTest) -> None:
    first = rooted.disk.open(rooted.put(".lock"), APPEND)
    second = rooted.disk.open(rooted.path(".lock"), APPEND)
    other = rooted.disk.open(rooted.put("other"), APPEND)
    assert rooted.disk.try_lock(first)
    assert rooted.disk.try_lock(first)
    assert not rooted.disk.try_lock(second)
    assert rooted.disk.try_lock(other)
    rooted.disk.close(first)
    assert rooted.disk.try_lock(second)
    rooted.disk.close(second)
    rooted.disk.close(other)


def test_a_mapping_is_read_only_and_stays_valid_after_close_and_unlink(
    rooted: DiskUnderTest,
) -> None:
    descriptor = rooted.disk.open(rooted.put("log", b"abcdef"), READ)
    mapping = rooted.disk.map(descriptor)
    rooted.disk.close(descriptor)
    rooted.disk.unlink(rooted.path("log"))
    assert len(mapping) == 6
    assert mapping[1:3] == b"bc"
    assert mapping.find(b"ef") == 4
    with memoryview(mapping) as view:
        assert view.readonly
    with pytest.raises(TypeError):
        mapping[0] = 1
    mapping.close()


def test_an_empty_file_is_not_mapped(rooted: DiskUnderTest) -> None:
    descriptor = rooted.disk.open(rooted.put("log"), READ)
    with pytest.raises(ValueError, match="empty"):
        rooted.disk.map(descriptor)
    rooted.disk.close(descriptor)


def test_replace_file_leaves_the_new_content_and_no_other_file(rooted: DiskUnderTest) -> None:
    replace_file(rooted.disk, rooted.path("checkpoint"), b"old")
    replace_file(rooted.disk, rooted.path("checkpoint"), b"newer")
    assert rooted.content("checkpoint") == b"newer"
    assert rooted.disk.list(rooted.root) == [DirectoryEntry("checkpoint", False)]


@pytest.mark.parametrize("flags", [READ, APPEND, CREATE])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_the_kernels_disk_opens_regular_files_only(tmp_path: Path, kind: str, flags: int) -> None:
    path = str(tmp_path / "special")
    listener = socket.socket(socket.AF_UNIX)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        listener.bind(path)
    else:
        os.symlink(os.devnull, path)
    with pytest.raises(OSError, match="is not a regular file"):
        RealDisk().open(path, flags)
    listener.close()
