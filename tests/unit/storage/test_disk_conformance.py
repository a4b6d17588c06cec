"""The same scenarios on the kernel and on its in-memory twin: what holds for one holds for both."""

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


class Place(NamedTuple):
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
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "kernel":
        return Place(cast("Disk", RealDisk()), str(tmp_path))
    return Place(SimulatedDisk("/data"), "/data")


def errno_of(call: Callable[..., object], *arguments: object) -> int | None:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        call(*arguments)
    return caught.value.errno


def test_writes_land_at_the_end_and_reads_are_short_there(place: Place) -> None:
    descriptor = place.disk.open(place.path("log"), CREATE)
    assert place.disk.write(descriptor, b"abc") == 3
    assert place.disk.write(descriptor, memoryview(bytearray(b"def"))) == 3
    assert place.disk.pread(descriptor, 100, 2) == b"cdef"
    assert place.disk.pread(descriptor, 2, 2) == b"cd"
    assert place.disk.pread(descriptor, 1, 6) == b""
    assert place.disk.pread(descriptor, 1, 60) == b""
    assert place.disk.size(descriptor) == place.disk.size_of(place.path("log")) == 6
    place.disk.close(descriptor)


def test_two_descriptors_append_to_one_file(place: Place) -> None:
    first = place.disk.open(place.path("log"), CREATE)
    second = place.disk.open(place.path("log"), APPEND)
    place.disk.write(first, b"one")
    place.disk.write(second, b"two")
    place.disk.write(first, b"three")
    assert read_fully(place.disk, second, 100, 0) == b"onetwothree"
    place.disk.close(first)
    place.disk.close(second)


def test_a_buffer_can_be_used_again_after_its_write(place: Place) -> None:
    descriptor = place.disk.open(place.path("log"), CREATE)
    buffer = bytearray(b"first")
    place.disk.write(descriptor, buffer)
    buffer[:] = b"other"
    assert place.disk.pread(descriptor, 5, 0) == b"first"
    place.disk.close(descriptor)


def test_read_into_fills_what_there_is_and_leaves_the_rest(place: Place) -> None:
    descriptor = place.disk.open(place.put("log", b"abcdef"), READ)
    buffer = bytearray(b"........")
    assert place.disk.read_into(descriptor, memoryview(buffer)[1:4], 1) == 3
    assert buffer == b".bcd...."
    assert place.disk.read_into(descriptor, memoryview(buffer), 4) == 2
    assert buffer == b"efcd...."
    assert place.disk.read_into(descriptor, memoryview(buffer), 6) == 0
    place.disk.close(descriptor)


def test_truncate_cuts_and_extends_with_zeros(place: Place) -> None:
    descriptor = place.disk.open(place.put("log", b"abcdef"), APPEND)
    place.disk.truncate(descriptor, 2)
    place.disk.truncate(descriptor, 4)
    place.disk.write(descriptor, b"z")
    assert place.content("log") == b"ab\0\0z"
    assert errno_of(place.disk.truncate, descriptor, -1) == EINVAL
    place.disk.close(descriptor)


def test_replace_flags_empty_the_file_under_other_descriptors(place: Place) -> None:
    reader = place.disk.open(place.put("log", b"abcdef"), READ)
    place.disk.close(place.disk.open(place.path("log"), REPLACE))
    assert place.disk.pread(reader, 6, 0) == b""
    place.disk.close(reader)


def test_a_descriptor_for_reading_changes_nothing(place: Place) -> None:
    descriptor = place.disk.open(place.put("log", b"abc"), READ)
    assert errno_of(place.disk.write, descriptor, b"x") == EBADF
    assert errno_of(place.disk.truncate, descriptor, 0) == EINVAL
    assert errno_of(place.disk.pread, descriptor, 1, -1) == EINVAL
    place.disk.sync(descriptor)
    place.disk.close(descriptor)
    assert place.content("log") == b"abc"


def test_a_closed_descriptor_is_bad_for_every_call(place: Place) -> None:
    disk = place.disk
    descriptor = disk.open(place.put("log", b"abc"), APPEND)
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


def test_an_unlinked_file_lives_on_in_its_descriptor(place: Place) -> None:
    descriptor = place.disk.open(place.put("log", b"abc"), APPEND)
    place.disk.unlink(place.path("log"))
    assert not place.disk.exists(place.path("log"))
    place.put("log", b"another")
    place.disk.write(descriptor, b"def")
    assert place.disk.pread(descriptor, 9, 0) == b"abcdef"
    assert place.content("log") == b"another"
    place.disk.close(descriptor)


def test_a_renamed_file_keeps_its_descriptor_and_replaces_the_target(place: Place) -> None:
    descriptor = place.disk.open(place.put("old", b"abc"), APPEND)
    replaced = place.disk.open(place.put("new", b"gone"), READ)
    place.disk.rename(place.path("old"), place.path("new"))
    place.disk.write(descriptor, b"def")
    assert place.content("old") is None
    assert place.content("new") == b"abcdef"
    assert place.disk.pread(replaced, 9, 0) == b"gone"
    place.disk.close(descriptor)
    place.disk.close(replaced)


def test_a_renamed_directory_takes_its_files_along(place: Place) -> None:
    place.disk.make_directory(place.path("topic-0"))
    descriptor = place.disk.open(place.put("topic-0/log", b"abc"), APPEND)
    place.disk.rename(place.path("topic-0"), place.path("topic-0.delete"))
    place.disk.write(descriptor, b"def")
    place.disk.close(descriptor)
    assert place.content("topic-0.delete/log") == b"abcdef"
    assert not place.disk.exists(place.path("topic-0"))


def test_rename_onto_itself_and_onto_an_empty_directory_is_fine(place: Place) -> None:
    place.put("file", b"abc")
    place.disk.rename(place.path("file"), place.path("file"))
    assert place.content("file") == b"abc"
    place.disk.make_directory(place.path("empty"))
    place.disk.make_directory(place.path("full"))
    place.put("full/file", b"def")
    place.disk.rename(place.path("full"), place.path("empty"))
    assert place.content("empty/file") == b"def"
    place.disk.rename(place.path("empty"), place.path("empty"))


def test_rename_refuses_what_the_kernel_refuses(place: Place) -> None:
    path, rename = place.path, place.disk.rename
    place.put("file")
    for name in ("empty", "full", "full/inner"):
        place.disk.make_directory(path(name))
    assert errno_of(rename, path("missing"), path("new")) == ENOENT
    assert errno_of(rename, path("file"), path("missing/new")) == ENOENT
    assert errno_of(rename, path("file"), path("empty")) == EISDIR
    assert errno_of(rename, path("empty"), path("file")) == ENOTDIR
    assert errno_of(rename, path("empty"), path("full")) == ENOTEMPTY
    assert errno_of(rename, path("full/inner"), path("full")) == ENOTEMPTY
    place.put("full/file")
    assert errno_of(rename, path("full/file"), path("full")) == ENOTEMPTY
    assert errno_of(rename, path("full"), path("full/inner/deeper")) == EINVAL
    assert errno_of(rename, path("file/x"), path("new")) == ENOTDIR


def test_paths_that_lead_nowhere(place: Place) -> None:
    disk, path = place.disk, place.path
    place.put("file")
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


def test_directories_are_made_listed_and_removed(place: Place) -> None:
    disk, path = place.disk, place.path
    disk.make_directory(path("topic"))
    place.put("file")
    assert sorted(disk.list(place.root)) == [
        DirectoryEntry("file", False),
        DirectoryEntry("topic", True),
    ]
    place.put("topic/log")
    assert errno_of(disk.make_directory, path("topic")) == EEXIST
    assert errno_of(disk.make_directory, path("file")) == EEXIST
    assert errno_of(disk.make_directory, path("missing/topic")) == ENOENT
    assert errno_of(disk.remove_directory, path("topic")) == ENOTEMPTY
    assert errno_of(disk.remove_directory, path("file")) == ENOTDIR
    assert errno_of(disk.remove_directory, path("missing")) == ENOENT
    assert errno_of(disk.unlink, path("topic")) == EISDIR
    disk.unlink(path("topic/log"))
    disk.remove_directory(path("topic"))
    assert disk.list(place.root) == [DirectoryEntry("file", False)]


def test_a_directory_opens_for_reading_only(place: Place) -> None:
    disk = place.disk
    assert errno_of(disk.open, place.root, APPEND) == EISDIR
    assert errno_of(disk.open, place.root, CREATE) == EISDIR
    descriptor = disk.open(place.root, READ)
    assert errno_of(disk.pread, descriptor, 1, 0) == EISDIR
    assert errno_of(disk.read_into, descriptor, memoryview(bytearray(1)), 0) == EISDIR
    assert disk.read_into(descriptor, memoryview(bytearray()), 0) == 0
    assert errno_of(disk.write, descriptor, b"x") == EBADF
    disk.sync(descriptor)
    assert disk.try_lock(descriptor)
    disk.close(descriptor)


def test_exclusive_creation_refuses_a_file_that_is_there(place: Place) -> None:
    place.disk.close(place.disk.open(place.path("file"), CREATE | os.O_EXCL))
    assert errno_of(place.disk.open, place.path("file"), CREATE | os.O_EXCL) == EEXIST


def test_a_lock_belongs_to_one_descriptor_until_it_closes(place: Place) -> None:
    first = place.disk.open(place.put(".lock"), APPEND)
    second = place.disk.open(place.path(".lock"), APPEND)
    other = place.disk.open(place.put("other"), APPEND)
    assert place.disk.try_lock(first)
    assert place.disk.try_lock(first)
    assert not place.disk.try_lock(second)
    assert place.disk.try_lock(other)
    place.disk.close(first)
    assert place.disk.try_lock(second)
    place.disk.close(second)
    place.disk.close(other)


def test_a_mapping_is_for_reading_and_outlives_name_and_descriptor(place: Place) -> None:
    descriptor = place.disk.open(place.put("log", b"abcdef"), READ)
    mapping = place.disk.map(descriptor)
    place.disk.close(descriptor)
    place.disk.unlink(place.path("log"))
    assert len(mapping) == 6
    assert mapping[1:3] == b"bc"
    assert mapping.find(b"ef") == 4
    with memoryview(mapping) as view:
        assert view.readonly
    with pytest.raises(TypeError):
        mapping[0] = 1
    mapping.close()


def test_an_empty_file_is_not_mapped(place: Place) -> None:
    descriptor = place.disk.open(place.put("log"), READ)
    with pytest.raises(ValueError, match="empty"):
        place.disk.map(descriptor)
    place.disk.close(descriptor)


def test_replace_file_leaves_the_new_content_and_no_other_file(place: Place) -> None:
    replace_file(place.disk, place.path("checkpoint"), b"old")
    replace_file(place.disk, place.path("checkpoint"), b"newer")
    assert place.content("checkpoint") == b"newer"
    assert place.disk.list(place.root) == [DirectoryEntry("checkpoint", False)]


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
